import { expect, it } from 'vitest'
import { sharedBrowser } from '../support/browser.ts'
import { withReceiver } from '../support/with-receiver.ts'
import { expectNoOverflow, openPage } from './support/console.ts'

it('shows costs by model, key and day, in a chart and a table, and what to do without any', async () => {
  const browser = await sharedBrowser()
  const { receiver, database, stop } = await withReceiver()
  try {
    const at = (path: string) => new URL(path, receiver.internalUrl).href
    const page = await openPage(browser, at('/costs'))
    expect(await page.locator('.empty').innerText()).toContain('curl -X POST')
    await database.sql`
      insert into mediadock.requests
        (request_id, status, model, key_name, sandbox, cost, media_complete, tracked_at, landed_at, source)
      select gen_random_uuid(), 'CANCELED', 'vela', 'live', false, 0.5 * n, true, now(), now(), 'webhook'
      from generate_series(1, 3) n`
    await page.goto(at('/costs'))
    const rows = page.locator('.scroll[aria-label="Costs"] tbody tr')
    expect(await rows.first().innerText()).toMatch(/vela\s+3\s+3\s+0/)
    await page.locator('.plot canvas').waitFor()
    await page.getByRole('navigation', { name: 'Costs by' }).getByRole('link', { name: 'Key' }).click()
    await page.waitForURL(/by=key_name/)
    expect(await rows.first().innerText()).toMatch(/live\s+3\s+3\s+0/)
    await page.goto(at('/costs?by=day'))
    expect(await rows.first().innerText()).toMatch(/\d{4}-\d\d-\d\d\s+3\s+3\s+0/)
    await expectNoOverflow(page)
    await page.setViewportSize({ width: 400, height: 800 })
    await expectNoOverflow(page)
  } finally {
    await stop()
  }
})
