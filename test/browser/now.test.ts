import { randomUUID } from 'node:crypto'
import type { Browser, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { startPostgresProxy } from '../platform/support/postgres-proxy.ts'
import { sharedBrowser } from '../support/browser.ts'
import type { TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { imageResult, json, startProviderStand, type ProviderStand } from '../support/provider-stand.ts'
import { startTestReceiver, type TestReceiver } from '../support/receiver.ts'
import { deliver, failed, okAudio, okImage } from '../support/webhooks.ts'
import { withReceiver } from '../support/with-receiver.ts'
import {
  expectAccessible,
  expectGoodLooks,
  expectNoOverflow,
  openPage,
  phone,
  shoot,
  type Look,
} from './support/console.ts'
import { takeAllBack } from './support/lent-pages.ts'

let browser: Browser
let stand: ProviderStand
let database: TestDatabase
let receiver: TestReceiver

// A picture of one pixel, so that the page has something real to load.
const pixel = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==',
  'base64',
)

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

const open = (path = '', look: Look = {}) => openPage(browser, `${receiver.internalUrl}${path}`, look)
const wrong = (page: Page) => page.getByRole('region', { name: 'What is wrong' })
const tile = async (page: Page, label: string) =>
  (await page.locator('a.tile', { hasText: label }).innerText()).replaceAll(/\s+/g, ' ')
const logged = (count: number) =>
  eventually(async () => (await database.sql`select from mediadock.arrivals`).length >= count)
const forged = { secret: 'whsec_of_nobody' }

/** Figures of the last minutes, as the loop writes them. */
async function minutes(...rows: { ago: number; arrivals?: Record<string, number>; overdue?: number }[]): Promise<void> {
  const { sql } = database
  for (const { ago, arrivals = { accepted: 10 }, overdue = 0 } of rows) {
    await sql`insert into mediadock.minutes (minute, written_at, arrivals, ack_p50_ms, ack_p95_ms, landed, landing_p50_seconds, landing_p95_seconds, inbox_pending, inbox_oldest_seconds, overdue)
      values (date_trunc('minute', now()) - make_interval(mins => ${ago}), now(), ${JSON.stringify(arrivals)}::text::jsonb, 3, 9.26, 8, 0.5, 1.234, 4, 2, ${overdue}) on conflict (minute) do update set arrivals = excluded.arrivals`
  }
}

describe('what is wrong', () => {
  it('states that nothing is wrong, and since when', async () => {
    const sinceOf = async () => Date.parse((await wrong(page).locator('time').getAttribute('datetime')) ?? '')
    // Nothing is known of the time without a receiver, so the calm begins with its start.
    await minutes({ ago: 40 })
    const started = async () => (await database.sql`select started_at from mediadock.process_starts`)[0]?.['started_at']
    await eventually(async () => (await started()) !== undefined)
    const page = await open()
    expect(await wrong(page).innerText()).toMatch(
      /^Nothing is wrong, and nothing has been since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.$/,
    )
    expect(await sinceOf()).toBe(new Date(await started()).getTime())
    // Another receiver ran before, and had trouble.
    await minutes({ ago: 30, arrivals: { 'refused/no_matching_secret': 1 } })
    for (let ago = 29; ago > 0; ago -= 1) await minutes({ ago })
    const [row] = await database.sql`select date_trunc('minute', now()) - interval '29 minutes' as at`
    // The minute may have turned since the rows were written.
    await eventually(async () => {
      await page.reload()
      return Math.abs((await sinceOf()) - Number(row?.['at'])) <= 60_000
    })
    // An issue of which the minutes know nothing, and a notice.
    await database.sql`insert into mediadock.issues (cause, severity, text, href, opened_at, seen_at, closed_at)
      values ('archive_store', 'critical', 'the archive is full', '/', now() - interval '1 hour', now(), now() - interval '10 minutes'),
        ('strangers', 'notice', 'a stranger', '/', now() - interval '1 hour', now(), now() - interval '5 minutes')`
    await eventually(async () => {
      await page.reload()
      return Math.abs((await sinceOf()) - (Date.now() - 600_000)) < 60_000
    })
    // Trouble earlier in the present minute.
    await minutes({ ago: 0, arrivals: { 'refused/no_matching_secret': 1 } })
    const now = await open()
    const since = await wrong(now).locator('time').getAttribute('datetime')
    expect(Date.parse(since ?? '')).toBeLessThanOrEqual(Date.now())
    await shoot(page, 'now-calm')
  })

  it('counts as many things as the navigation counts issues, and the arrivals of the present minute', async () => {
    await deliver(receiver.webhookUrl, Buffer.from('{"not": "ours"}'))
    await logged(1)
    await eventually(async () => (await database.sql`select from mediadock.minutes`).length > 0)
    await database.sql`update mediadock.minutes set written_at = now() + interval '1 hour', arrivals = '{}'`
    const page = await open()
    await wrong(page).getByText('One thing is wrong').waitFor()
    const issues = page.locator('[data-count=issues] b')
    await expect.poll(() => issues.innerText()).toBe('1')
    const legend = page.locator('figure', { hasText: 'Arrivals by outcome' }).locator('.u-legend')
    await expect.poll(async () => (await legend.innerText()).replaceAll(/\s+/g, '')).toContain('parked1')
  })

  it('shows of an accepted arrival that its delivery was parked since, and why', async () => {
    await deliver(receiver.webhookUrl, Buffer.from('{"not": "ours"}'))
    await logged(1)
    await database.sql`update mediadock.arrivals set outcome = 'accepted', reason = null`
    const page = await open()
    const row = page.getByRole('group', { name: 'Latest arrivals' }).locator('tbody tr')
    expect(await row.innerText()).toMatch(/accepted\s+parked\s+No request id/)
  })

  it('lists problems, the worst first, each with a link to act on it, and is calm again when they are solved', async () => {
    for (let n = 0; n < 3; n += 1) await deliver(receiver.webhookUrl, okImage().body, forged)
    await deliver(receiver.webhookUrl, Buffer.from('{"not": "ours"}'))
    await logged(4)
    await eventually(async () => (await database.sql`select from mediadock.known_senders`).length > 0)
    const page = await open()
    const items = wrong(page).locator('li')
    await eventually(async () => (await items.count()) === 2 && (await items.nth(0).innerText()).startsWith('critical'))
    expect(await items.nth(0).innerText()).toMatch(
      /^critical[\s\S]*3 of 4 arrivals[\s\S]*were refused: no secret matches/,
    )
    expect(await items.nth(1).innerText()).toMatch(/^warning[\s\S]*1 delivery parked in the last hour/)
    expect(await tile(page, 'Refused')).toBe('Refused in 5 min 3 no secret matches: 3')
    expect(await tile(page, 'Parked')).toBe('Parked 1 to replay by hand')
    await page.getByRole('region', { name: 'Failed webhooks' }).getByText('1 of 6').first().waitFor()
    const badge = page.locator('[data-count=issues].bad')
    expect(await badge.textContent()).toBe('2 open issues, 1 critical')
    // The issues themselves are opened by a role, in its own time.
    await database.sql`delete from mediadock.issues`
    const second = await open('audit')
    expect(await second.locator('[data-count=issues].bad').textContent()).toBe('2 open issues, 1 critical')
    await second.close()
    await expectGoodLooks(page, 'now')
    await items.nth(0).getByRole('link').click()
    await page.waitForURL('**/parked?reason=no_matching_secret')
    await page.goBack()
    await database.sql`delete from mediadock.quarantine`
    await database.sql`delete from mediadock.arrivals`
    await database.sql`delete from mediadock.arrival_counts`
    await database.sql`delete from mediadock.deliveries`
    await wrong(page).getByText('Nothing is wrong').waitFor()
  })

  it('links every problem to an existing page', async () => {
    await database.sql`insert into mediadock.requests (request_id, tracked_at) values (${randomUUID()}, now() - interval '1 day')`
    await database.sql`insert into mediadock.key_uses (key_name, first_match_at, last_match_at, matches) values ('<b>gone</b>', now(), now(), 3)`
    await database.sql`insert into mediadock.call_budgets (key_name, slots, slots_until, granted, blocked_until, blocked_reason) values ('live', array_fill(0, array[61]), 0, true, now() + interval '1 hour', 'unauthorized')`
    const page = await open()
    const links = wrong(page).getByRole('link')
    expect(
      await wrong(page)
        .locator('li')
        .evaluateAll((items) => items.map((item) => item.getAttribute('data-cause'))),
    ).toEqual(['key_refused:live', 'overdue', 'removed_key_matched:<b>gone</b>'])
    for (const href of await links.evaluateAll((all) => all.map((link) => link.getAttribute('href') ?? ''))) {
      expect((await fetch(new URL(href, receiver.internalUrl))).status, href).toBe(200)
    }
    expect(await wrong(page).locator('.problems b').count()).toBe(0)
    expect(await tile(page, 'Overdue requests')).toBe('Overdue requests 1 1 to poll, about 1 min')
    expect(await tile(page, 'Incomplete results')).toBe('Incomplete results 0 none waits for its full result')
  })

  it('folds less urgent problems if there are many, and keeps unfolded ones open', async () => {
    const request_id = randomUUID()
    const bodies = [
      'no JSON',
      '{}',
      JSON.stringify({ request_id, status: 'PAUSED' }),
      JSON.stringify({ request_id, status: 'OK', payload: 'none' }),
      JSON.stringify({ request_id, status: 'OK', note: '\0' }),
    ]
    for (const body of [...bodies.map((text) => Buffer.from(text)), Buffer.from([0xff, 0xfe])])
      await deliver(receiver.webhookUrl, body)
    await database.sql`insert into mediadock.requests (request_id, tracked_at) values (${randomUUID()}, now() - interval '1 day')`
    const page = await open()
    await eventually(async () => (await wrong(page).locator('li').count()) >= 6)
    const visible = wrong(page).locator('li:visible')
    expect(await visible.count()).toBe(5)
    expect(await visible.first().getAttribute('data-cause')).toBe('overdue')
    await wrong(page)
      .getByText(/none of them critical$/)
      .click()
    expect(await visible.count()).toBeGreaterThan(5)
    await page.waitForResponse('**/now')
    await page.waitForResponse('**/now')
    expect(await visible.count()).toBeGreaterThan(5)
    await expectAccessible(page)
  })

  it('says so when Postgres does not answer, and recovers', async () => {
    const proxy = await startPostgresProxy(database.url)
    const behind = await startTestReceiver({ databaseUrl: proxy.url })
    onTestFinished(() => behind.stop())
    const page = await openPage(browser, behind.internalUrl, { expectProblems: true })
    proxy.swallowAfter(0)
    // Its charts may find out first.
    const alert = wrong(page).getByRole('alert')
    await alert.waitFor()
    expect(await alert.innerText()).toContain('Postgres does not answer')
    expect(await page.locator('#charts').count()).toBe(1)
    await expectAccessible(page)
    proxy.passOn()
    proxy.cut()
    // Roles that failed meanwhile stay an alarm for a minute.
    await alert.waitFor({ state: 'detached' })
    await page.locator('a.tile', { hasText: 'Parked' }).waitFor()
  })
})

describe('the live part', () => {
  it('shows an arrival and its picture without a reload', async () => {
    const page = await open()
    await page.getByText('No webhook has arrived yet').waitFor()
    const requestId = randomUUID()
    // The link of the webhook, until the whole result is there.
    const output = { images: [{ url: `${stand.url}/${requestId}.png` }] }
    const notification = { request_id: requestId, status: 'OK', payload: { model: 'aurora-image', output, cost: 4 } }
    await deliver(receiver.webhookUrl, Buffer.from(JSON.stringify(notification)))
    const picture = page.getByAltText(`Result of ${requestId}`)
    await picture.waitFor()
    await expect.poll(() => picture.evaluate((image) => Number(Object(image).naturalWidth))).toBe(1)
    const row = page.getByRole('group', { name: 'Latest arrivals' }).locator('tbody tr').first()
    expect(await row.innerText()).toContain('accepted')
    await receiver.deps.background.reconcileNow()
    await expect.poll(() => page.locator(`#result-${requestId}`).innerText()).toContain('2 items')
    expect(await tile(page, 'Arrivals')).toBe('Arrivals in 5 min 1 1 accepted, 0 duplicates')
    await row.getByRole('link').first().click()
    await page.waitForURL('**/deliveries/*')
  })

  it('keeps focus, scroll position, open details and marks', async () => {
    await minutes({ ago: 1 })
    for (let n = 0; n < 4; n += 1) await deliver(receiver.webhookUrl, okAudio().body)
    await logged(4)
    const page = await open('', { viewport: phone })
    await page.getByText('As a table').first().click()
    await page.keyboard.press('Escape')
    for (let n = 0; n < 3; n += 1) await page.keyboard.press('j')
    const marked = page.locator('[data-row].marked')
    const id = await marked.getAttribute('data-row')
    await page.evaluate('scrollTo(0, 700)')
    await deliver(receiver.webhookUrl, okAudio().body)
    await expect.poll(() => page.locator('[data-row]').count()).toBe(5)
    expect(await marked.getAttribute('data-row')).toBe(id)
    expect(await page.evaluate('document.activeElement.closest("[data-row]").dataset.row')).toBe(id)
    expect(await page.evaluate('scrollY')).toBe(700)
    await Promise.all([
      page.waitForResponse('**/now/charts*'),
      page.waitForResponse('**/now'),
      page.evaluate(
        'document.querySelectorAll("[data-live]").forEach((part) => part.dispatchEvent(new CustomEvent("refresh")))',
      ),
    ])
    expect(await page.locator('#charts details').first().getAttribute('open')).toBe('')
    expect(await page.locator('.plot canvas').count()).toBe(4)
  })

  it('stops while the page is hidden, and when it is switched off', async () => {
    const page = await open('', { isForItself: true })
    // From here on the page's own time only passes when the test lets it.
    await page.clock.install()
    await page.reload()
    const fetched: string[] = []
    const underWay = new Set<object>()
    page.on('request', (request) => {
      fetched.push(new URL(request.url()).pathname)
      underWay.add(request)
    })
    page.on('requestfinished', (request) => underWay.delete(request))
    page.on('requestfailed', (request) => underWay.delete(request))
    const fetchedIn = async (seconds: number) => {
      // A minute that passes at once would be too long for what is under way.
      await eventually(() => underWay.size === 0)
      fetched.length = 0
      await page.clock.runFor(seconds * 1000)
      return fetched
    }
    await eventually(async () => (await fetchedIn(3)).includes('/now'))
    await page.evaluate(`Object.defineProperty(document, 'hidden', { configurable: true, get: () => true })`)
    expect(await fetchedIn(60)).toEqual([])
    await page.evaluate(`delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))`)
    await eventually(() => fetched.includes('/now') && fetched.includes('/now/charts'))

    await page.keyboard.press('t')
    expect(new URL(page.url()).searchParams.get('live')).toBe('off')
    expect(await fetchedIn(60)).toEqual([])
    const same = await open(page.url().slice(receiver.internalUrl.length))
    expect(await same.getByRole('button', { name: 'Live' }).getAttribute('aria-pressed')).toBe('false')
    await same.getByRole('button', { name: 'Live' }).click()
    await same.waitForRequest('**/now')
    expect(new URL(same.url()).search).toBe('')
  })

  it('asks Postgres once for all tabs', async () => {
    const texts = await Promise.all(
      Array.from({ length: 20 }, async () => (await fetch(new URL('now', receiver.internalUrl))).text()),
    )
    // The moment of the read is among it, to the millisecond.
    expect(new Set(texts).size).toBe(1)
  })

  it('asks to sign in again when the session has ended', async () => {
    const guarded = await startTestReceiver({
      databaseUrl: database.url,
      providerUrl: stand.url,
      settings: { internalToken: 'a-token-of-thirty-two-characters-x' },
    })
    try {
      const page = await openPage(browser, guarded.internalUrl, { expectProblems: true })
      await page.locator('input[type=password]').fill('a-token-of-thirty-two-characters-x')
      await page.getByRole('button', { name: 'Sign in' }).click()
      await page.getByRole('heading', { name: 'Now' }).waitFor()
      await page.context().clearCookies()
      await page.locator('input[type=password]').waitFor()
      expect(await page.locator('#live').count()).toBe(0)
    } finally {
      await guarded.stop()
    }
  })
})

describe('the stages of a webhook', () => {
  it('are shown with their last hour above the chart of arrivals, without scrolling', async () => {
    const gone = { 'refused/no_matching_secret': 2, unavailable: 1 }
    await minutes({ ago: 30, arrivals: { accepted: 7, 'parked/not_json': 1, ...gone }, overdue: 4 }, { ago: 29 })
    for (const ago of [28, 27, 26]) await minutes({ ago })
    const page = await open()
    const names = ['Received', 'Verified', 'Landed', 'Complete']
    const stages = names.map((name) => page.getByRole('region', { name, exact: true }))
    await page.getByText('Nothing is wrong').waitFor()
    // The receiver itself writes of the minute before this one.
    const lines = await Promise.all(stages.map((stage) => stage.getByRole('img').getAttribute('aria-label')))
    expect(lines.map((line) => line?.replaceAll('\u00a0', ' '))).toEqual([
      expect.stringMatching(/^Arrivals a minute: from 11 to (10|0) in (5|29|3\d) min, at most 11$/),
      expect.stringMatching(/^Authentic arrivals a minute: from 8 to (10|0) in (5|29|3\d) min, at most 10$/),
      expect.stringMatching(/^Results landed a minute: from 8 to (8|0) in (5|29|3\d) min, at most 8$/),
      expect.stringMatching(/^Overdue requests: from 4 to 0 in (5|29|3\d) min, at most 4$/),
    ])
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

describe('foreign content', () => {
  it('stays text', async () => {
    const nasty = '<img src=x onerror="document.title=\'owned\'">'
    const hostile = Buffer.from(
      JSON.stringify({
        request_id: randomUUID(),
        status: 'OK',
        payload: { model: nasty, output: { audio: { url: 'javascript:document.title="owned"' } }, cost: 1 },
      }),
    )
    await deliver(receiver.webhookUrl, hostile)
    const page = await open()
    await page.locator('bdi', { hasText: '<img src=x' }).waitFor()
    expect(await page.title()).toBe('Now · mediadock')
    expect(await page.locator('[src^="javascript:"], [href^="javascript:"], img[src="x"]').count()).toBe(0)
    await page.getByText('not shown: it is not https').waitFor()
  })

  it('fits a phone from the first moment, and is accessible in both schemes', async () => {
    await deliver(receiver.webhookUrl, failed().body)
    await deliver(receiver.webhookUrl, okAudio().body)
    await logged(2)
    const page = await open('', { viewport: phone })
    await page.locator('.result').first().waitFor()
    await expectNoOverflow(page)
    await expectGoodLooks(page, 'now-results')
  })
})
