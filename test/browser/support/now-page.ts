import type { Browser, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach } from 'vitest'
import { sharedBrowser } from '../../support/browser.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult, json, startProviderStand, type ProviderStand } from '../../support/provider-stand.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { openPage, type Look } from './console.ts'
import { takeAllBack } from './lent-pages.ts'

export let browser: Browser
export let stand: ProviderStand
export let database: TestDatabase
export let receiver: TestReceiver

// A picture of one pixel, so that the page has something real to load.
const pixel = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==',
  'base64',
)

/** For a file of tests of the first page: each test gets a receiver on a database of its own. */
export function startReceiverForEach(): void {
  beforeAll(async () => {
    browser = await sharedBrowser()
    stand = await startProviderStand()
    stand.answer((id, req, res) => {
      if (req.url?.endsWith('.png')) return void res.writeHead(200, { 'content-type': 'image/png' }).end(pixel)
      const result = imageResult(id, 2)
      for (const image of result.output.images) image.url = `${stand.url}/${id}.png`
      return json(res, 200, result)
    })
  })
  afterAll(async () => {
    await stand.close()
  })
  beforeEach(async () => {
    const its = await withReceiver({ providerUrl: stand.url })
    ;({ database, receiver } = its)
    return its.stop
  })
  afterEach(async () => {
    // A page that refreshes itself must not outlive what it asks.
    await takeAllBack(browser)
  })
}

export const open = (path = '', look: Look = {}) => openPage(browser, `${receiver.internalUrl}${path}`, look)
export const wrong = (page: Page) => page.getByRole('region', { name: 'What is wrong' })
export const tile = async (page: Page, label: string) =>
  (await page.locator('a.tile', { hasText: label }).innerText()).replaceAll(/\s+/g, ' ')
export const logged = (count: number) =>
  eventually(async () => (await database.sql`select from mediadock.arrivals`).length >= count)

/** Figures of the last minutes, as the loop writes them. */
export async function minutes(...rows: { ago: number; arrivals?: Record<string, number> }[]): Promise<void> {
  const { sql } = database
  for (const { ago, arrivals = { accepted: 10 } } of rows) {
    await sql`insert into mediadock.minutes (minute, written_at, arrivals, ack_p50_ms, ack_p95_ms, landed, landing_p50_seconds, landing_p95_seconds, inbox_pending, inbox_oldest_seconds, overdue)
      values (date_trunc('minute', now()) - make_interval(mins => ${ago}), now(), ${JSON.stringify(arrivals)}::text::jsonb, 3, 9.26, 8, 0.5, 1.234, 4, 2, 0) on conflict (minute) do update set arrivals = excluded.arrivals`
  }
}
