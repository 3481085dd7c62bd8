import { randomUUID } from 'node:crypto'
import type { Browser, Page } from 'playwright-core'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { expectGoodLooks, openPage, shoot } from '../../browser/support/console.ts'
import { sharedBrowser } from '../../support/browser.ts'
import type { TestDatabase } from '../../support/database.ts'
import { imageResult, json, type ProviderStand } from '../../support/provider-stand.ts'
import { liveKey, startTestReceiver, type TestReceiver } from '../../support/receiver.ts'
import { withReceiver } from '../../support/with-receiver.ts'

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

/** Two submits, of which the first is older. */
async function submitsWait(): Promise<[string, string]> {
  const ids: [string, string] = [randomUUID(), randomUUID()]
  for (const [at, id] of ids.entries())
    await database.sql`insert into mediadock.generations (idempotency_key, model, input, key_name, created_at, next_attempt_at, attempts, last_error)
      values (${id}, 'aurora-video', '{}', ${liveKey.name}, now() - ${7 - at} * interval '1 minute', now() + interval '5 minutes', 3, 'connect ECONNREFUSED')`
  return ids
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

const tile = (page: Page, label: string) => page.locator('.tile', { hasText: label }).innerText()

describe('the reconciler', () => {
  it('says that it has never run, and that nothing is due', async () => {
    const page = await openPage(browser, at('/reconciler'))
    const text = await page.locator('main').innerText()
    expect(text).toContain('no run has ended yet')
    expect(text).toContain('0\npolls due now')
    expect(text).toContain('by hand\nRECONCILE_CRON (0 0 1 1 *) runs rarely, next at')
    expect(text).toContain('The reconciler has not run yet')
  })

  it('runs on demand, and shows what the run did', async () => {
    await track(3)
    let calls = 0
    stand.answer((id, _req, res) => {
      calls += 1
      if (calls === 1)
        return json(res, 404, { error: { type: 'invalid_request_error', code: 'not_found', message: 'unknown' } })
      return json(res, 200, imageResult(id, 1))
    })
    const page = await openPage(browser, at('/reconciler'))
    expect(await tile(page, 'due now')).toMatch(/^3\s+polls due now, about 1 min$/)
    await shoot(page, 'reconciler-before')
    await page.getByRole('button', { name: 'Run now' }).click()
    await page.getByText('3 requests polled').waitFor()
    expect(await rows(page).innerText()).toMatch(/by hand\s+ok\s+3 requests polled, .*landed/)
    expect(await tile(page, 'due now')).toMatch(/^0\s/)
    const [entry] = await database.sql`select via, action, detail from mediadock.audit`
    expect(entry).toMatchObject({ via: 'console', action: 'reconcile_run', detail: { scanned: 3 } })
  })

  it('shows how a run ended that outlasts its call', async () => {
    await track(1)
    const held = Promise.withResolvers<void>()
    stand.answer((id, _req, res) => void held.promise.then(() => json(res, 200, imageResult(id, 1))))
    const page = await openPage(browser, at('/reconciler'))
    await page.getByRole('button', { name: 'Run now' }).click()
    held.resolve()
    await page.getByText('1 request polled, 1 landed').waitFor()
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

  it('lists the latest runs with their figures, errors as text', async () => {
    const nasty = '<img src=x onerror="document.title=\'owned\'">'
    await ran({ minutesAgo: 50, outcome: 'idle', idle: 120 })
    await ran({ minutesAgo: 20, scanned: 1200, failed: 7, limited: 3 })
    await ran({ minutesAgo: 10, outcome: 'error', error: nasty })
    const page = await openPage(browser, at('/reconciler'))
    const [failing, busy, idle] = await rows(page).allInnerTexts()
    expect(failing).toContain(nasty)
    expect(busy).toMatch(
      /failed polls\s+1\u202f197 requests polled, 1\u202f190 landed, 7 failed, 3 postponed \(3 by 429\)\s+2\ss/,
    )
    expect(idle).toMatch(/idle\s+nothing due in 120 runs/)
    expect(await page.title()).toBe('Reconciler · mediadock')
    expect(await page.locator('main img').count()).toBe(0)
  })

  it('shows how long the oldest submit has waited, with its last error, and finds it', async () => {
    const [oldest] = await submitsWait()
    const page = await openPage(browser, at('/reconciler'))
    expect(await tile(page, 'submits wait')).toMatch(
      /^2\s+submits wait for an answer, the oldest for 7\smin, last error: connect ECONNREFUSED$/,
    )
    await page.getByRole('link', { name: 'the oldest' }).click()
    await page.locator('main', { hasText: oldest }).waitFor()
  })

  it('is accessible in both schemes, and fits a phone', async () => {
    await track(2)
    await submitsWait()
    await ran({ minutesAgo: 50, outcome: 'idle', idle: 120 })
    await ran({ minutesAgo: 20, scanned: 12, failed: 2, limited: 3 })
    await ran({ minutesAgo: 10, outcome: 'error', error: 'connect ECONNREFUSED 127.0.0.1:5432' })
    const page = await openPage(browser, at('/reconciler'))
    await expectGoodLooks(page, 'reconciler-0')
  })
})
