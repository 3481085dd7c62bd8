import { once } from 'node:events'
import type http from 'node:http'
import type { AddressInfo } from 'node:net'
import express from 'express'
import { html } from 'hono/html'
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { page as frame, pageAssets, pageHeaders, sendPage } from '../../src/platform/pages/console-page.ts'
import { chart } from '../../src/receiver/console/now/now-charts.ts'
import { assets } from '../../src/receiver/console/router.ts'
import { sharedBrowser } from '../support/browser.ts'
import { expectAccessible, expectNoOverflow, openPage, phone, schemes, shoot } from './support/console.ts'

let browser: Browser
let server: http.Server
let url: string
/** The contents of the refreshed part. */
let latest = 5
let starts: number[] = []

const minute = 60
const start = Date.UTC(2026, 0, 31, 3, 0) / 1000
const at = Array.from({ length: 60 }, (_, n) => start + n * minute)

function charts() {
  return html`<div class="charts">
    ${chart({
      label: 'Arrivals <b>by</b> outcome',
      unit: 'a minute',
      kind: 'bars',
      at,
      series: [
        { label: 'accepted', tone: 'good', values: at.map((_, n) => 20 + (n % 7)) },
        { label: 'refused', tone: 'bad', values: at.map((_, n) => (n > 40 ? 9 : 0)) },
      ],
      marks: starts,
    })}
    ${chart({ label: 'Inbox', unit: 's', kind: 'line', at, series: [{ label: 'oldest', tone: 'accent', values: at.map((_, n) => (n === 59 ? latest : n === 10 ? null : n / 7)) }] })}
  </div>`
}

beforeAll(async () => {
  browser = await sharedBrowser()
  const app = express()
  app.use(pageHeaders({ mediaOrigins: [] }), pageAssets(assets))
  app.get('/', (_req, res) =>
    sendPage(
      res,
      frame({
        title: 'Charts',
        product: 'test',
        nav: [],
        body: html`<h1>Charts</h1><div hx-get="/part" hx-trigger="again from:body" hx-swap="innerMorph">${charts()}</div>`,
        scripts: ['/assets/console.js', '/assets/chart.js'],
        styles: ['/assets/uplot.css', '/assets/receiver.css'],
      }),
    ),
  )
  app.get('/part', (_req, res) => sendPage(res, charts()))
  server = app.listen(0, '127.0.0.1')
  await once(server, 'listening')
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
})
afterAll(async () => {
  server.closeAllConnections()
  server.close()
})

const paint = (page: Awaited<ReturnType<typeof openPage>>, nth: number) =>
  page
    .locator('.plot canvas')
    .nth(nth)
    .evaluate((canvas) => (canvas as unknown as { toDataURL: () => string }).toDataURL())

it.each(schemes)('draws in the %s scheme, with a table of the same data, and fits a phone', async (colorScheme) => {
  const page = await openPage(browser, url, { colorScheme })
  await page.locator('.plot canvas').nth(1).waitFor()
  await page.getByText('As a table').first().click()
  expect(await page.locator('figure').first().locator('details tbody tr').first().innerText()).toBe(
    '2026-01-31 03:00:00\t20\t0',
  )
  expect(await page.locator('.u-legend').first().innerText()).toMatch(/refused[\s\S]*accepted/)
  expect(await page.locator('figcaption b').count()).toBe(0)
  await expectAccessible(page)
  await shoot(page, `charts-${colorScheme}`)
  const narrow = await openPage(browser, url, { colorScheme, viewport: phone })
  await narrow.locator('.plot canvas').nth(1).waitFor()
  await expectNoOverflow(narrow)
})

it('marks a start in the last minute, whose bar is not over yet', async () => {
  starts = [start + 30 * minute]
  const page = await openPage(browser, url)
  await page.locator('.plot canvas').nth(1).waitFor()
  const before = await paint(page, 0)
  starts = [...starts, start + 59 * minute + 50]
  await page.evaluate('document.body.dispatchEvent(new Event("again"))')
  await expect.poll(() => paint(page, 0)).not.toBe(before)
})

it('redraws when the scheme or the size changes, and after a partial refresh', async () => {
  const page = await openPage(browser, url, { colorScheme: 'light' })
  await page.locator('.plot canvas').nth(1).waitFor()
  const light = await paint(page, 1)
  await page.emulateMedia({ colorScheme: 'dark' })
  await expect.poll(() => paint(page, 1)).not.toBe(light)
  await page.setViewportSize({ width: 700, height: 800 })
  await expect
    .poll(() =>
      page
        .locator('.plot canvas')
        .first()
        .evaluate((canvas) => canvas.getBoundingClientRect().width),
    )
    .toBeLessThan(690)
  const before = await paint(page, 1)
  latest = 50
  await page.evaluate('document.body.dispatchEvent(new Event("again"))')
  await expect.poll(() => page.locator('.plot canvas').count()).toBe(2)
  await expect.poll(() => paint(page, 1)).not.toBe(before)
})
