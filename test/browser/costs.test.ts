import type { Page } from 'playwright-core'
import { expect, it } from 'vitest'
import { printedRequest } from '../laptop/support/laptop.ts'
import { sharedBrowser } from '../support/browser.ts'
import { withReceiver } from '../support/with-receiver.ts'
import { expectNoOverflow, openPage, shoot } from './support/console.ts'
import { startWorld } from './support/request-world.ts'

it('shows costs by model, key and day, in a chart and a table, and what to do if there are none', async () => {
  const browser = await sharedBrowser()
  const world = await startWorld()
  const { receiver, database, stop } = await withReceiver({ providerUrl: world.url })
  try {
    const at = (path: string) => new URL(path, receiver.internalUrl).href
    const page = await openPage(browser, at('/costs'))
    await shoot(page, 'costs-none')
    const { url, headers, body } = printedRequest(`  ${await page.locator('.empty pre').innerText()}`)
    expect((await fetch(url, { method: 'POST', headers, body })).status).toBe(202)
    const [submit] = await database.sql`select model, key_name, input from mediadock.generations`
    expect(submit).toEqual({ model: 'aurora-image', key_name: 'live', input: { prompt: 'a lighthouse at dusk' } })
    await database.sql`delete from mediadock.requests`
    await database.sql`
      insert into mediadock.requests
        (request_id, status, model, key_name, sandbox, cost, media_complete, tracked_at, landed_at, source)
      select gen_random_uuid(), 'CANCELED', 'vela', 'live', false, 0.5 * n, true, now(), now(), 'webhook'
      from generate_series(1, 3) n`
    await database.sql`update mediadock.call_budgets set balance = 240, balance_at = now() where key_name = 'live'`
    await page.goto(at('/costs'))
    await page.getByText('240 (key live)').waitFor()
    const rows = page.locator('.scroll[aria-label="Costs"] tbody tr')
    expect(await rows.first().innerText()).toMatch(/vela\s+3\s+3\s+0/)
    await page.locator('.plot canvas').waitFor()
    const { at: days } = JSON.parse((await page.locator('[data-chart]').getAttribute('data-chart')) ?? '')
    expect(days).toHaveLength(30)
    await page.getByRole('navigation', { name: 'Costs by' }).getByRole('link', { name: 'Key' }).click()
    await page.waitForURL(/by=key_name/)
    expect(await rows.first().innerText()).toMatch(/live\s+3\s+3\s+0/)
    await page.getByRole('group', { name: 'Time range' }).getByRole('link', { name: '6 h' }).click()
    await page.waitForURL(/since=/)
    const tab = page.getByRole('navigation', { name: 'Costs by' }).locator('[aria-current]')
    expect(await tab.innerText()).toBe('Key')
    await page.getByText('More filters').click()
    await page.getByRole('textbox', { name: 'Since (UTC)' }).fill('2h')
    await page.getByRole('button', { name: 'Filter' }).click()
    await page.getByRole('link', { name: 'Clear all' }).waitFor()
    expect(await tab.innerText()).toBe('Key')
    expect(await rows.first().getByRole('link').getAttribute('href')).toMatch(/^\/requests\?key_name=live&since=/)
    await page.getByRole('link', { name: 'Clear all' }).click()
    await page.waitForURL((url) => !url.searchParams.has('since'))
    expect(await tab.innerText()).toBe('Key')
    await database.sql`update mediadock.requests set metadata = jsonb_build_object('user', 'ann')`
    await page.getByRole('textbox', { name: 'By a member of the metadata' }).fill('user')
    await page.keyboard.press('Enter')
    await page.waitForURL(/metadata=user/)
    expect(await rows.first().innerText()).toMatch(/ann\s+3\s+3\s+0/)
    await page.goto(at('/costs?by=day'))
    expect(await rows.first().innerText()).toMatch(/\d{4}-\d\d-\d\d\s+3\s+3\s+0/)
    await database.sql`update mediadock.requests set tracked_at = now() - make_interval(days => (4 * cost)::int)`
    await page.goto(at('/costs'))
    const [first, ...others] = await widthsOfBars(page)
    expect(others).toEqual([first, first])
    await expectNoOverflow(page)
    await shoot(page, 'costs')
    await page.setViewportSize({ width: 400, height: 800 })
    await expectNoOverflow(page)
  } finally {
    await stop()
    await world.close()
  }
})

/** The widths of the bars of the settled credits, in pixels: runs of their colour above the axis. */
async function widthsOfBars(page: Page): Promise<number[]> {
  await page.locator('.plot canvas').waitFor()
  return page.evaluate<number[]>(`(() => {
    const canvas = document.querySelector('.plot canvas')
    const [over, whole] = [document.querySelector('.u-over'), canvas].map((one) => one.getBoundingClientRect())
    const y = Math.round((over.bottom - whole.top) * devicePixelRatio) - 4
    const { data } = canvas.getContext('2d').getImageData(0, y, canvas.width, 1)
    const accent = document.body.appendChild(document.createElement('i'))
    accent.style.color = 'var(--chart-accent)'
    const colour = getComputedStyle(accent).color.match(/\\d+/g).map(Number)
    const runs = []
    for (let x = 0, run = 0; x <= canvas.width; x += 1) {
      if (colour.every((part, at) => Math.abs(part - data[x * 4 + at]) < 3)) run += 1
      else if (run > 0) run = runs.push(run) * 0
    }
    return runs
  })()`)
}
