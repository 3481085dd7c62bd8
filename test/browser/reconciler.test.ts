import { randomUUID } from 'node:crypto'
import type { Browser, Page } from 'playwright-core'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { sharedBrowser } from '../support/browser.ts'
import type { TestDatabase } from '../support/database.ts'
import { imageResult, json, type ProviderStand } from '../support/provider-stand.ts'
import { liveKey, startTestReceiver, type TestReceiver } from '../support/receiver.ts'
import { withReceiver } from '../support/with-receiver.ts'
import { expectGoodLooks, openPage, shoot } from './support/console.ts'

let browser: Browser
let database: TestDatabase
let stand: ProviderStand
let receiver: TestReceiver

beforeAll(async () => {
  browser = await sharedBrowser()
})
beforeEach(async () => {
  const its = await withReceiver({ stand: true })
  ;({ database, receiver, stand } = its)
  return its.stop
})

const at = (path: string) => new URL(path, receiver.internalUrl).href
const rows = (page: Page) => page.locator('.scroll[aria-label="Runs"] tbody tr')

async function track(count: number): Promise<void> {
  for (let n = 0; n < count; n += 1) {
    await database.sql`insert into mediadock.requests (request_id, key_name, tracked_at) values (${randomUUID()}, ${liveKey.name}, now() - interval '1 hour')`
  }
}

type Run = {
  minutesAgo: number
  trigger?: string
  outcome?: string
  idle?: number
  scanned?: number
  failed?: number
  limited?: number
  error?: string | null
}

async function ran({
  minutesAgo,
  trigger = 'cron',
  outcome = 'ok',
  idle = 0,
  scanned = 0,
  failed = 0,
  limited = 0,
  error = null,
}: Run): Promise<void> {
  await database.sql`
    insert into mediadock.reconcile_runs (started_at, ended_at, trigger, outcome, idle_runs, scanned, landed, failed, postponed, rate_limited, error)
    select at, at + interval '1500 ms', ${trigger}, ${outcome}, ${idle}, ${scanned}, ${scanned - failed - limited}, ${failed}, ${limited}, ${limited}, ${error}
    from (select now() - make_interval(mins => ${minutesAgo}) as at) as started`
}

describe('the reconciler', () => {
  it('says that it has never run, and that nothing is due', async () => {
    const page = await openPage(browser, at('/reconciler'))
    const text = await page.locator('main').innerText()
    expect(text).toContain('no run has ended yet')
    expect(text).toContain('A run now polls nothing')
    expect(text).toContain('by hand\nRECONCILE_CRON (0 0 1 1 *) runs rarely, next at')
    expect(text).toContain('or the reconciler has not run yet')
  })

  it("runs on demand, and shows the run's progress and results", async () => {
    await track(3)
    let calls = 0
    stand.answer((id, _req, res) => {
      calls += 1
      if (calls === 1)
        return json(res, 404, { error: { type: 'invalid_request_error', code: 'not_found', message: 'unknown' } })
      return json(res, 200, imageResult(id, 1))
    })
    const page = await openPage(browser, at('/reconciler'))
    await page.getByText('A run now polls 3 requests that are due.').waitFor()
    expect(await page.locator('.tile', { hasText: 'polls to make now' }).innerText()).toMatch(/^3\s/)
    expect(await page.locator('.tile', { hasText: 'to poll them all' }).innerText()).toContain('about 1 min')
    expect(await page.locator('.tile', { hasText: 'incomplete' }).innerText()).toMatch(
      /^0\s.* a minute can be completed/s,
    )
    await shoot(page, 'reconciler-before')
    await page.getByRole('button', { name: 'Run now' }).click()
    await page.getByText(/Run \d+ \(by hand, .*3 requests polled, .*landed/).waitFor()
    expect(page.url()).toMatch(/open=\d+$/)
    const marked = page.locator('tr.marked')
    expect(await marked.innerText()).toContain('by hand')
    expect(await marked.locator('td:nth-child(4)').innerText()).toContain('3 requests polled')
    await page.getByText('A run now polls nothing').waitFor()
    const [entry] = await database.sql`select via, action, detail from mediadock.audit`
    expect(entry).toMatchObject({ via: 'console', action: 'reconcile_run', detail: { scanned: 3 } })
    const pasted = await openPage(browser, page.url())
    await pasted
      .getByText(/3 requests polled/)
      .first()
      .waitFor()
    expect(await pasted.locator('tr.marked').count()).toBe(1)
  })

  it('shows a running run, and then how it ended', async () => {
    await track(1)
    const held = Promise.withResolvers<void>()
    stand.answer((id, _req, res) => void held.promise.then(() => json(res, 200, imageResult(id, 1))))
    const page = await openPage(browser, at('/reconciler'))
    await page.getByRole('button', { name: 'Run now' }).click()
    await page.getByText(' continues. Its result').waitFor()
    expect(page.url()).toContain('awaited=')
    held.resolve()
    await page.getByText('1 request polled, 1 landed').waitFor()
    await page.getByRole('link', { name: 'Show it in the list' }).click()
    await page.locator('tr.marked').waitFor()
  })

  it('reports that it is silent, and what to do', async () => {
    await receiver.stop()
    receiver = await startTestReceiver({
      databaseUrl: database.url,
      providerUrl: stand.url,
      settings: { reconcileCron: '*/30 * * * *' },
    })
    await ran({ minutesAgo: 200, scanned: 2 })
    receiver.setNow(new Date(Date.now() + 3 * 3_600_000))
    const page = await openPage(browser, at('/reconciler'))
    expect(await page.getByRole('alert').innerText()).toMatch(
      /No run of the reconciler has ended on any replica since/s,
    )
  })

  it('lists runs with their figures, pages through them and filters', async () => {
    const nasty = '<img src=x onerror="document.title=\'owned\'">'
    await ran({ minutesAgo: 50, outcome: 'idle', idle: 120 })
    for (const minutesAgo of [40, 30, 20]) await ran({ minutesAgo, scanned: 1200, failed: 7, limited: 3 })
    await ran({ minutesAgo: 10, outcome: 'error', error: nasty })
    const page = await openPage(browser, at('/reconciler?limit=2'))
    expect(await page.getByRole('alert').innerText()).toContain('The last run failed')
    expect(await rows(page).count()).toBe(2)
    expect(await rows(page).first().innerText()).toContain(nasty)
    expect(await rows(page).nth(1).innerText()).toMatch(
      /1\u202f197 requests polled, 1\u202f190 landed, 7 failed, 3 postponed \(3 by 429\)\s+2\ss/,
    )
    await page.getByRole('link', { name: 'Older' }).click()
    await page.waitForURL(/cursor=/)
    await page.getByRole('link', { name: 'Older' }).click()
    await page.getByText('120 runs').waitFor()
    expect(await rows(page).count()).toBe(1)
    await page.goto(at('/reconciler'))
    await shoot(page, 'reconciler')
    await page.selectOption('select[name=outcome]', 'error')
    await page.waitForURL(/outcome=error/)
    await expect.poll(() => rows(page).count()).toBe(1)
    await page.keyboard.press('j')
    await page.keyboard.press('Enter')
    await page.getByText(/Run \d+ .* failed:/).waitFor()
    expect(page.url()).toContain('outcome=error')
    expect(await page.title()).toBe('Reconciler · mediadock')
    expect(await page.locator('main img').count()).toBe(0)
  })

  it('names a wrong filter and keeps the form', async () => {
    const page = await openPage(browser, at('/reconciler?outcome=splendid'), { expectProblems: true })
    expect(await page.getByRole('alert').innerText()).toContain('outcome')
    expect(await page.locator('select[name=outcome]').inputValue()).toBe('splendid')
    expect((await page.goto(at('/reconciler?open=x')))?.status()).toBe(400)
  })

  it('is accessible in both schemes, and fits a phone', async () => {
    await track(2)
    await ran({ minutesAgo: 50, outcome: 'idle', idle: 120 })
    await ran({ minutesAgo: 20, scanned: 12, failed: 2, limited: 3 })
    await ran({ minutesAgo: 10, outcome: 'error', error: 'connect ECONNREFUSED 127.0.0.1:5432' })
    const page = await openPage(browser, at('/reconciler'))
    for (const [n, path] of [
      '/reconciler',
      '/reconciler?open=2',
      '/reconciler?awaited=2020-01-01T00:00:00Z',
    ].entries()) {
      await page.goto(at(path))
      await expectGoodLooks(page, `reconciler-${n}`)
    }
  })
})
