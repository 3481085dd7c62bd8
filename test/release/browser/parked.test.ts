import { randomUUID } from 'node:crypto'
import type { Browser, Page } from 'playwright-core'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { expectGoodLooks, openPage, shoot } from '../../browser/support/console.ts'
import { readPage } from '../../browser/support/read-page.ts'
import { sharedBrowser } from '../../support/browser.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { keysOf, liveKey, type TestReceiver } from '../../support/receiver.ts'
import { deliver, nowSeconds, okAudio, okImage } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let browser: Browser
let database: TestDatabase
let receiver: TestReceiver

const newKey = {
  name: 'live-2026',
  api_key: 'service_live_cccccccccccccccc',
  signing_secret: 'whsec_the_one_that_was_missing',
}
const nasty = '<img src=x onerror="document.title=\'owned\'">'

beforeAll(async () => {
  browser = await sharedBrowser()
})
const begin = async () => {
  const its = await withReceiver()
  ;({ database, receiver } = its)
  return its.stop
}

const at = (path: string) => new URL(path, receiver.internalUrl).href
const cause = (page: Page, title: string) =>
  page.locator('.cause', { has: page.getByRole('link', { name: title, exact: true }) })
const rows = (page: Page, name: string) => page.locator(`.scroll[aria-label="${name}"] tbody tr`)
const tableRow = (page: Page, name: string, text: string) => rows(page, name).filter({ hasText: text })

async function refuse({
  body,
  times = 1,
  webhookId = randomUUID(),
  headers = {},
}: {
  body: Buffer
  times?: number
  webhookId?: string
  headers?: Record<string, string>
}): Promise<void> {
  for (let n = 0; n < times; n += 1)
    await deliver(receiver.webhookUrl, body, { webhookId, secret: newKey.signing_secret, headers })
}

/** The quarantine is written off the way of the answer. */
async function quarantined(count: number): Promise<void> {
  await eventually(async () => {
    const [row] = await database.sql`select count(*)::int as n from mediadock.quarantine`
    return row?.['n'] === count
  })
}

async function someOfEach(): Promise<{ requestId: string }> {
  const { body, requestId } = okAudio()
  await refuse({ body, times: 3 })
  await refuse({ body: okAudio().body })
  await deliver(receiver.webhookUrl, okAudio().body, { t: nowSeconds() - 4000 })
  await fetch(receiver.webhookUrl, { method: 'POST', headers: { 'x-service-webhook-id': 'scan' }, body: '{}' })
  await deliver(receiver.webhookUrl, Buffer.from('this is no JSON'))
  await deliver(receiver.webhookUrl, Buffer.from(JSON.stringify({ request_id: randomUUID(), status: 'PAUSED' })))
  await quarantined(6)
  // From here on what came from there may be the provider's.
  await eventually(async () => (await database.sql`select from mediadock.known_senders`).length > 0)
  return { requestId }
}

describe('parked and quarantine, empty', () => {
  beforeAll(begin)

  it('says so when there is nothing', async () => {
    const { main } = await readPage(at('/parked'))
    for (const words of ['The quarantine is empty', 'Nothing is parked', 'No webhook is failing'])
      expect(main).toContain(words)
  })

  it('explains a refusal without a quarantined delivery, and links to the log', async () => {
    const page = await openPage(browser, at('/parked?reason=payload_too_large'))
    await page.getByText('The body is larger than MAX_BODY_BYTES.').waitFor()
    await page.getByText('Such arrivals are not kept').waitFor()
    await page.getByRole('link', { name: 'log of arrivals' }).click()
    await page.waitForURL(/view=arrivals&outcome=refused&reason=payload_too_large/)
    expect(await page.locator('select[name=reason] option:checked').innerText()).toBe('Body too large')
    await page.getByText('Cause Body too large').waitFor()
  })

  it('shows the words of a long cause whole', async () => {
    const page = await openPage(browser, at('/deliveries?view=arrivals&reason=landing_failed'))
    const [words, room] = await page.evaluate<[number, number]>(`(() => {
      const select = document.querySelector('select[name=reason]')
      const span = document.createElement('span')
      span.style.font = getComputedStyle(select).font
      span.textContent = select.selectedOptions[0].textContent
      document.body.append(span)
      return [span.getBoundingClientRect().width, select.clientWidth]
    })()`)
    // The rest is padding and the arrow.
    expect(room - words).toBeGreaterThan(16)
  })

  it('names a wrong filter and keeps the form', async () => {
    const { said, main } = await readPage(at('/parked?view=quarantine&since=yesterday'))
    expect(said.alert).toContain('since')
    expect(main).toContain('value="yesterday"')
    for (const path of ['/parked?view=elsewhere', '/parked/verified?checked=many'])
      expect((await readPage(at(path))).status).toBe(400)
    for (const path of ['/parked/quarantine/1', '/parked/quarantine/x'])
      expect((await readPage(at(path))).status).toBe(404)
  })
})

describe('parked and quarantine, with rows', () => {
  beforeAll(async () => {
    const stop = await begin()
    await someOfEach()
    return stop
  })

  it('groups by cause, with counts, what it means and what to do', async () => {
    const page = await openPage(browser, at('/parked'))
    const missing = await cause(page, 'No secret matches').innerText()
    expect(missing).toMatch(/\b4\b/)
    expect(missing).toContain('first seen')
    expect(missing).toContain("Copy the key's signing secret from the provider, and add it to the configured keys")
    expect(await cause(page, 'Signed too long ago').innerText()).toContain('Compare our clock')
    expect(await cause(page, 'No signature header').count()).toBe(1)
    expect(await cause(page, 'Not JSON').innerText()).toContain('after an upgrade')
    expect(await cause(page, 'Unknown status').count()).toBe(1)
    expect(await page.getByRole('heading', { name: 'Quarantine: 6 refused arrivals' }).count()).toBe(1)
    expect(await page.getByText('A secret was added').count()).toBe(0)
    expect(await tableRow(page, 'Failed webhooks', '3 of 6').count()).toBe(1)
    await shoot(page, 'parked')
  })

  it('links from a parked cause to the replay of all its deliveries', async () => {
    const page = await openPage(browser, at('/parked'))
    await page.getByRole('link', { name: 'Not JSON' }).click()
    await page.getByText('Meaning and what to do').waitFor()
    await expect.poll(() => rows(page, 'Deliveries').count()).toBe(1)
    await page.getByRole('link', { name: 'Replay all that match…' }).click()
    await page.getByRole('heading', { name: 'Replay one delivery?' }).waitFor()
    expect(await page.locator('main').innerText()).toContain('not_json')
  })

  it('states that no quarantined delivery was accepted', async () => {
    const page = await openPage(browser, at('/parked/verify'))
    await page.getByRole('button', { name: 'Verify 6' }).click()
    await page.getByText('6 refused arrivals checked, none accepted').waitFor()
    await page.getByRole('link', { name: 'Those still refused' }).click()
    await expect.poll(() => rows(page, 'Refused arrivals').count()).toBe(6)
  })

  it('is accessible in both schemes, and fits a phone', async () => {
    receiver.setKeys(keysOf(liveKey, newKey))
    const page = await openPage(browser, at('/parked'))
    const [kept] = await database.sql`select min(id) as id from mediadock.quarantine`
    const paths = [
      '/parked',
      '/parked?reason=no_matching_secret',
      '/parked?reason=not_json',
      '/parked/verify',
      `/parked/quarantine/${kept?.['id']}`,
    ]
    for (const [n, path] of paths.entries()) {
      await page.goto(at(path))
      await expectGoodLooks(page, `parked-${n}`)
    }
  })
})

describe('parked and quarantine', () => {
  beforeEach(begin)

  it('verifies a cause again after its secret was added, and shows the landed results', async () => {
    const { requestId } = await someOfEach()
    const page = await openPage(browser, at('/parked'))
    await cause(page, 'No secret matches').getByRole('link', { name: 'Verify again' }).click()
    await page.getByRole('heading', { name: 'Verify 4 refused arrivals again?' }).waitFor()
    expect(await tableRow(page, 'To be checked', 'No secret matches').innerText()).toContain('stays refused')
    expect(await page.getByText('None of the tried arrivals would be accepted').count()).toBe(1)

    receiver.setKeys(keysOf(liveKey, newKey))
    await page.goto(at('/parked'))
    const hint = page.getByText('A secret was added: all of the newest 4')
    expect(await hint.innerText()).toContain('live-2026')
    await shoot(page, 'parked-hint')
    await hint.getByRole('link').click()
    await page.getByRole('button', { name: 'Verify 4' }).waitFor()
    expect(await tableRow(page, 'To be checked', 'No secret matches').innerText()).toMatch(/accepted\s+4 of 4/)
    await shoot(page, 'parked-verify')
    await page.getByRole('button', { name: 'Verify 4' }).click()

    await page.getByText('4 refused arrivals of the cause “No secret matches” checked: 4 accepted.').waitFor()
    await page.getByText('All have ended: 2 processed.').waitFor()
    await shoot(page, 'parked-verified')
    const [landed] = await database.sql`select status from mediadock.results where request_id = ${requestId}`
    expect(landed?.['status']).toBe('COMPLETED')
    await page.locator(`main a[href="/requests/${requestId}"]`).waitFor()
    const [entry] = await database.sql`select via, action, target, detail from mediadock.audit`
    expect(entry).toEqual({
      via: 'console',
      action: 'verify_quarantine',
      target: 'reason=no_matching_secret',
      detail: { checked: 4, accepted: 4, refused: 0 },
    })
    // A pasted link shows the same.
    const pasted = await openPage(browser, page.url())
    await pasted.getByText('4 refused arrivals of the cause “No secret matches” checked: 4 accepted.').waitFor()
    await page.getByRole('link', { name: 'To the causes' }).click()
    await page.getByRole('heading', { name: 'Quarantine: 2 refused arrivals' }).waitFor()
    expect(await cause(page, 'No secret matches').count()).toBe(0)
  })

  it('opens a cause and pages through its rows by keyboard', async () => {
    for (let n = 0; n < 7; n += 1) await refuse({ body: okImage().body, webhookId: `wh-${n}` })
    await quarantined(7)
    const page = await openPage(browser, at('/parked?reason=no_matching_secret&limit=3'))
    const ids = () => rows(page, 'Refused arrivals').locator('td:nth-child(2)').allInnerTexts()
    expect(await ids()).toEqual(['wh-6', 'wh-5', 'wh-4'])
    await refuse({ body: okImage().body, webhookId: 'wh-7' })
    await quarantined(8)
    await page.getByRole('link', { name: 'Older' }).click()
    await expect.poll(ids).toEqual(['wh-3', 'wh-2', 'wh-1'])
    const again = await openPage(browser, page.url())
    expect(await rows(again, 'Refused arrivals').first().innerText()).toContain('wh-3')
    await page.keyboard.press('j')
    await page.keyboard.press('j')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Refused arrival', exact: true }).waitFor()
    await page.getByRole('link', { name: 'wh-2' }).waitFor()
    await page.goto(at('/parked?view=quarantine'))
    await page.keyboard.press('/')
    await page.keyboard.type('wh-5')
    await page.keyboard.press('Enter')
    await page.waitForURL(/webhook_id=wh-5/)
    await expect.poll(ids).toEqual(['wh-5'])
  })

  it('shows a refused arrival without its signature, and escapes hostile content', async () => {
    const body = Buffer.concat([
      Buffer.from(
        JSON.stringify({
          request_id: randomUUID(),
          status: 'ERROR',
          error: { code: nasty, message: '\u202Eoverride' },
        }),
      ),
      Buffer.alloc(100_000, 0x20),
    ])
    await refuse({ body, webhookId: '<b>id</b>', headers: { 'x-note': nasty, authorization: 'Bearer a-secret' } })
    await quarantined(1)
    const page = await openPage(browser, at('/parked?reason=no_matching_secret'))
    await page.locator('[data-row] a').first().click()
    await page.getByRole('heading', { name: 'Refused arrival', exact: true }).waitFor()
    const text = await page.locator('main').innerText()
    expect(text).toContain('<b>id</b>')
    expect(text).toContain('The first 64.0')
    expect(text).toContain('U+202E')
    expect(text).not.toMatch(/v1=|a-secret/)
    expect(text).toContain('it is still refused')
    expect(await page.title()).toBe('Refused arrival · mediadock')
    expect(await page.locator('main img').count()).toBe(0)
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: 'Download the bytes' }).click(),
    ])
    expect(download.suggestedFilename()).toMatch(/^refused-\d+\.bin$/)
    await page.getByRole('link', { name: 'Hex', exact: true }).click()
    await page.getByText('7b 22 72 65 71').waitFor()
    receiver.setKeys(keysOf(liveKey, newKey))
    await page.reload()
    await page.getByText("With today's secrets it is authentic").waitFor()
  })
})
