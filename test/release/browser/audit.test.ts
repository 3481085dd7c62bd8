import { randomUUID } from 'node:crypto'
import type { Browser, Page } from 'playwright-core'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import type { AuditedAction, Detail } from '../../../src/platform/pages/audit.ts'
import { audited } from '../../../src/receiver/upkeep/audit.ts'
import { expectGoodLooks, openPage, shoot } from '../../browser/support/console.ts'
import { sharedBrowser } from '../../support/browser.ts'
import type { TestDatabase } from '../../support/database.ts'
import { startTestReceiver, type TestReceiver } from '../../support/receiver.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let browser: Browser
let database: TestDatabase
let receiver: TestReceiver

const nasty = '<img src=x onerror="document.title=\'owned\'">'

beforeAll(async () => {
  browser = await sharedBrowser()
  const its = await withReceiver()
  ;({ database, receiver } = its)
  return its.stop
})

const at = (path: string) => new URL(path, receiver.internalUrl).href
const rows = (page: Page) => page.locator('.scroll[aria-label="Audit"] tbody tr')
const links = (page: Page) =>
  rows(page)
    .locator('td:nth-child(3)')
    .evaluateAll((cells) => cells.map((cell) => cell.querySelector('a')?.getAttribute('href') ?? null))

const base = Date.parse('2026-03-01T03:00:00Z')

async function did(minute: number, { detail = {}, ...action }: AuditedAction & { detail?: Detail }): Promise<void> {
  const deps = { ...receiver.deps, clock: () => new Date(base + minute * 60_000) }
  await audited(deps, { ...action, detailOf: () => detail }, () => Promise.resolve())
}

const ids = { delivery: randomUUID(), request: randomUUID(), key: randomUUID() }

async function aNight(): Promise<void> {
  await did(0, {
    via: 'cli',
    actor: 'ops@host-1',
    action: 'replay',
    target: ids.delivery,
    detail: { replayed: 1, changed: 0 },
  })
  await did(1, {
    via: 'api',
    actor: '10.0.0.7',
    action: 'reconcile',
    target: ids.request,
    detail: { scanned: 1, landed: 1, running: 0, notFound: 0, rateLimited: 2 },
  })
  await did(2, {
    via: 'console',
    actor: 'Ada',
    action: 'verify_quarantine',
    target: 'reason=no_matching_secret',
    detail: { checked: 40, accepted: 38, refused: 2 },
  })
  await did(3, {
    via: 'console',
    actor: 'Ada',
    action: 'replay_many',
    target: 'state=parked&reason=not_json',
    detail: { count: 12, replayed: 12, changed: 0, failed: 0, end: 'done' },
  })
  await did(4, {
    via: 'console',
    actor: 'Ada',
    action: 'replay',
    target: `ids=${ids.delivery}`,
    detail: { replayed: 1 },
  })
  await did(5, { via: 'console', actor: 'Ada', action: 'reconcile_run', detail: { scanned: 0 } })
  await did(6, {
    via: 'api',
    actor: '10.0.0.7',
    action: 'replay',
    target: ids.key,
    detail: { model: nasty, status: 202 },
  })
  await did(7, {
    via: 'cli',
    actor: nasty,
    action: 'verify_quarantine',
    detail: { error: 'Postgres cannot be reached' },
  })
  await did(8, { via: 'api', actor: '10.0.0.7', action: 'reconcile', target: 'javascript:alert(1)', detail: {} })
}

describe('the audit', () => {
  it('reports an empty audit', async () => {
    const page = await openPage(browser, at('/audit'))
    await page.getByText('No action in the last RETENTION_DAYS').waitFor()
  })

  it('names a wrong filter and keeps the form', async () => {
    const page = await openPage(browser, at('/audit?via=telepathy&actor=Ada'), { expectProblems: true })
    expect(await page.getByRole('alert').innerText()).toContain('via')
    expect(await page.locator('input[name=actor]').inputValue()).toBe('Ada')
  })
})

describe('an audit with entries', () => {
  beforeAll(aNight)

  it('shows actor, action, address, result and a link to the target', async () => {
    const page = await openPage(browser, at('/audit'))
    expect(await links(page)).toEqual([
      null,
      null,
      `/search?q=${ids.key}`,
      null,
      null,
      null,
      null,
      `/search?q=${ids.request}`,
      `/search?q=${ids.delivery}`,
    ])
    expect(await rows(page).nth(6).innerText()).toMatch(
      /03:02:00.*verify_quarantine.*reason=no_matching_secret.*(?=.*checked 40)(?=.*accepted 38).*refused 2.*Ada.*console/s,
    )
    expect(await rows(page).nth(7).innerText()).toMatch(/reconcile.*landed 1.*10\.0\.0\.7.*api/s)
    expect(await rows(page).nth(1).innerText()).toMatch(/failed Postgres cannot be reached.*cli/s)
    expect(await rows(page).nth(0).innerText()).toContain('javascript:alert(1)')
    expect(await rows(page).nth(2).innerText()).toContain(nasty)
    expect(await page.title()).toBe('Audit · mediadock')
    expect(await page.locator('main img, [href^="javascript:"]').count()).toBe(0)
    await shoot(page, 'audit')
  })

  it('filters by address, action, actor, target and time, all kept in the URL', async () => {
    const page = await openPage(browser, at('/audit'))
    await page.selectOption('select[name=via]', 'console')
    await page.waitForURL(/via=console/)
    await expect.poll(() => rows(page).count()).toBe(4)
    await page.locator('input[name=action]').fill('replay')
    await page.keyboard.press('Enter')
    await page.waitForURL(/action=replay/)
    await expect.poll(() => rows(page).count()).toBe(1)
    const pasted = await openPage(browser, page.url())
    expect(await rows(pasted).count()).toBe(1)
    await page.getByRole('link', { name: 'Clear all' }).click()
    await expect.poll(() => rows(page).count()).toBe(9)
    await page.keyboard.press('/')
    await page.keyboard.type('10.0.0.7')
    await page.keyboard.press('Enter')
    await page.waitForURL(/actor=10/)
    await expect.poll(() => rows(page).count()).toBe(3)
    await page.goto(at(`/audit?target=${ids.request}`))
    expect(await rows(page).count()).toBe(1)
    await page.goto(at('/audit?since=2026-03-01+03:02&until=2026-03-01+03:04'))
    expect(await rows(page).count()).toBe(2)
    await rows(page).first().getByRole('link', { name: 'Ada' }).click()
    await page.waitForURL(/actor=Ada/)
    expect(page.url()).toContain('since=2026-03-01T03')
  })

  it('is accessible in both schemes, and fits a phone', async () => {
    const page = await openPage(browser, at('/audit'))
    await expectGoodLooks(page, 'audit')
  })

  it('pages by cursor, and keeps its place while new entries arrive', async () => {
    const page = await openPage(browser, at('/audit?limit=4'))
    expect(await rows(page).count()).toBe(4)
    await did(9, { via: 'api', actor: '10.0.0.8', action: 'reconcile' })
    await page.getByRole('link', { name: 'Older' }).click()
    await page.waitForURL(/cursor=/)
    await expect.poll(() => rows(page).first().innerText()).toContain('03:04:00')
  })

  it('records actions of the console with the name from the sign-in', async () => {
    const internalToken = 'a-token-of-at-least-32-characters'
    const guarded = await startTestReceiver({ databaseUrl: database.url, settings: { internalToken } })
    onTestFinished(() => guarded.stop())
    const page = await openPage(browser, new URL('/reconciler', guarded.internalUrl).href, { expectProblems: true })
    await page.getByLabel('Token').fill(internalToken)
    await page.getByLabel('Your name').fill('Grace Hopper')
    await page.getByRole('button', { name: 'Sign in' }).click()
    await page.getByRole('button', { name: 'Run now' }).click()
    await page.getByRole('cell', { name: 'by hand' }).waitFor()
    await page.getByRole('link', { name: 'Audit' }).click()
    await expect.poll(() => rows(page).first().innerText()).toMatch(/reconcile_run.*Grace Hopper.*console/s)
  })
})
