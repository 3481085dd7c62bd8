import { randomUUID } from 'node:crypto'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  expectAccessible,
  expectGoodLooks,
  expectNoOverflow,
  openPage,
  phone,
  shoot,
} from '../../browser/support/console.ts'
import {
  browser,
  database,
  logged,
  minutes,
  open,
  receiver,
  startReceiverForEach,
  tile,
  wrong,
} from '../../browser/support/now-page.ts'
import { track } from '../../browser/support/request-world.ts'
import { startPostgresProxy } from '../../platform/support/postgres-proxy.ts'
import { eventually } from '../../support/eventually.ts'
import { startTestReceiver } from '../../support/receiver.ts'
import { deliver, failed, okAudio, okImage } from '../../support/webhooks.ts'

startReceiverForEach()

const forged = { secret: 'whsec_of_nobody' }

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
    const ours = await track(database)
    for (const id of [ours, undefined, undefined]) await deliver(receiver.webhookUrl, okImage(id).body, forged)
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
    await database.sql`insert into mediadock.call_budgets (key_name, slots, slots_until, granted, blocked_until, blocked_reason) select name, array_fill(0, array[61]), 0, true, now() + interval '1 hour', 'unauthorized' from unnest(array['live', '<b>gone</b>']) name`
    const page = await open()
    const links = wrong(page).getByRole('link')
    expect(
      await wrong(page)
        .locator('li')
        .evaluateAll((items) => items.map((item) => item.getAttribute('data-cause'))),
    ).toEqual(['key_refused:live', 'key_refused:<b>gone</b>', 'overdue'])
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
