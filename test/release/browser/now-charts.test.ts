import type { Page } from 'playwright-core'
import { describe, expect, it } from 'vitest'
import { database, minutes, open, receiver, startReceiverForEach, tile } from '../../browser/support/now-page.ts'
import { eventually } from '../../support/eventually.ts'

startReceiverForEach()

describe('the stages of a webhook', () => {
  it('are shown above the chart of arrivals, without scrolling', async () => {
    await minutes({ ago: 30, arrivals: { accepted: 7, 'parked/not_json': 1 } }, { ago: 29 })
    const page = await open()
    await page.getByText('Nothing is wrong').waitFor()
    for (const name of ['Received', 'Verified', 'Landed', 'Complete'])
      await page.getByRole('region', { name, exact: true }).waitFor()
    await page.locator('.plot canvas').first().waitFor()
    const plot = await page.locator('.plot').first().boundingBox()
    expect((plot?.y ?? 0) + (plot?.height ?? 0)).toBeLessThanOrEqual(800)
    expect(await page.locator('*').count()).toBeLessThan(600)
  })
})

const allCharts = (page: Page) => page.getByText('Landing, inbox and response time').click()

describe('the charts', () => {
  it('are drawn in a browser without a language, such as Chromium in the C locale', async () => {
    // Where no minute is known yet, the charts are only fetched for again after a while.
    await minutes({ ago: 1 })
    const page = await open('', { language: 'en-US@posix' })
    await allCharts(page)
    await page.locator('.plot canvas').nth(3).waitFor()
  })

  it('show the figures of each minute, and when a process started', async () => {
    await minutes(
      { ago: 2, arrivals: { accepted: 7, 'refused/no_matching_secret': 2, 'refused/malformed_header': 1 } },
      { ago: 5 },
    )
    await eventually(async () => (await database.sql`select from mediadock.process_starts`).length > 0)
    const page = await open()
    // Of what nobody has opened there is nothing in the page.
    await page.locator('.plot canvas').first().waitFor()
    expect(await page.locator('figure details td').count()).toBe(0)
    await allCharts(page)
    await page.locator('.plot canvas').nth(3).waitFor()
    const figure = (label: string) => page.locator('figure', { hasText: label })
    const row = async (label: string, nth: number) => {
      const details = figure(label).locator('details')
      if ((await details.getAttribute('open')) === null) await details.locator('summary').click()
      await details.locator('tbody tr').nth(nth).waitFor()
      return (await details.locator('tbody tr').nth(nth).locator('td.number').allInnerTexts()).join(' ')
    }
    expect(await row('Arrivals by outcome', 0)).toBe('10 0')
    expect(await row('Arrivals by outcome', 1)).toBe('7 3')
    expect(await row('Landing', 1)).toBe('0.5 1.23')
    expect(await row('Inbox', 1)).toBe('4')
    expect(await row('Response time', 1)).toBe('3 9.3')
    expect(await page.locator('.chart-note').innerText()).toMatch(
      /A dashed line marks the start of a receiver: at \d\d:\d\d:\d\d on /,
    )
    const spec = JSON.parse((await page.locator('[data-chart]').first().getAttribute('data-chart')) ?? '')
    expect(spec.marks).toHaveLength(1)
    // Three hours are shown, however few minutes there are figures of.
    expect(spec.at.length).toBeGreaterThanOrEqual(180)
  })

  it('link to the arrivals of a time with the clicked outcome, as their legends explain', async () => {
    await minutes({ ago: 60, arrivals: { accepted: 50, 'refused/no_matching_secret': 50 } })
    const page = await open()
    const first = page.locator('figure', { hasText: 'Arrivals by outcome' })
    await first.locator('canvas').waitFor()
    expect((await first.locator('.u-legend').innerText()).replaceAll(/\s+/g, '')).toBe('totalrefused50accepted50')
    const over = first.locator('.u-over')
    const { width, height } = (await over.boundingBox()) ?? { width: 0, height: 0 }
    const spec = JSON.parse((await first.locator('[data-chart]').getAttribute('data-chart')) ?? '')
    const place = spec.series[0].values.findIndex((value: number | null) => value === 50)
    const x = (width * (spec.at[place] - spec.at[0])) / (spec.at.at(-1) - spec.at[0])
    await over.click({ position: { x, y: height - 5 } })
    await page.waitForURL(/view=arrivals/)
    const { searchParams } = new URL(page.url())
    expect(searchParams.get('outcome')).toBe('accepted')
    expect(Date.parse(searchParams.get('until') ?? '') - Date.parse(searchParams.get('since') ?? '')).toBe(60_000)
    expect(Date.parse(searchParams.get('since') ?? '')).toBe(spec.at[place] * 1000)
    await page.goto(`${receiver.internalUrl}deliveries?since=15m&until=1m`)
    expect(await page.getByRole('alert').count()).toBe(0)
  })

  it('keep their range in the address: 1 h, 24 h, and fixed times', async () => {
    await minutes({ ago: 2 }, { ago: 600 })
    const page = await open()
    await page.getByRole('link', { name: '24 h' }).click()
    await page.waitForURL('**/?range=24h')
    expect(await page.getByRole('link', { name: '24 h' }).getAttribute('aria-current')).toBe('true')
    const specs = () => page.locator('[data-chart]').first().getAttribute('data-chart')
    expect(JSON.parse((await specs()) ?? '').at.length).toBeLessThanOrEqual(300)
    await page.getByRole('link', { name: 'Copy a link to this time range' }).click()
    await page.waitForURL(/since=.*until=/)
    const { searchParams } = new URL(page.url())
    expect(Date.parse(searchParams.get('until') ?? '') - Date.parse(searchParams.get('since') ?? '')).toBe(86_400_000)
    await page.getByLabel('Since (UTC)').fill('2026-01-31 03:00')
    await page.getByLabel('Until (UTC)').fill('2026-01-31 04:00')
    await page.getByRole('button', { name: 'Show' }).click()
    await page.getByText('no receiver ran then').waitFor()
    // Earlier parts are not fetched again.
    expect(await page.locator('#charts [hx-get]').count()).toBe(0)
  })

  it('explain an invalid range, and the rest of the page stays', async () => {
    const page = await open('', { expectProblems: true })
    for (const [query, words] of [
      ['range=2h', 'range: must be one of 1h, 3h, 24h'],
      ['since=yesterday', 'since: must be a duration like 15m, or a time'],
      ['since=2026-01-02&until=2026-01-01', 'until: must be later than since'],
      ['range=1h&since=2026-01-02', 'range: cannot be combined with'],
      ['flavour=1', 'flavour: is not a parameter'],
    ] as const) {
      const answer = await page.goto(`${receiver.internalUrl}?${query}`)
      expect(answer?.status(), query).toBe(400)
      expect(await page.locator('#charts [role=alert]').innerText()).toContain(words)
      expect(await tile(page, 'Parked'), query).toContain('0')
    }
  })
})
