import { randomUUID } from 'node:crypto'
import type { Browser, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest'
import { openPage, shoot } from '../../browser/support/console.ts'
import { takeAllBack } from '../../browser/support/lent-pages.ts'
import { track } from '../../browser/support/request-world.ts'
import { long } from '../../chaos/length.ts'
import { startPostgresProxy } from '../../platform/support/postgres-proxy.ts'
import { sharedBrowser } from '../../support/browser.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { json, startProviderStand, type ProviderStand } from '../../support/provider-stand.ts'
import { startTestReceiver, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, okAudio, okImage } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

// The first page that the on-call reads, and the pages that it links to: each sentence must be true. The long form adds
// alarms that the drills or receiver/on-call/problems.test.ts show too.

let browser: Browser
let stand: ProviderStand
let database: TestDatabase
let receiver: TestReceiver

beforeAll(async () => {
  browser = await sharedBrowser()
  stand = await startProviderStand()
})
afterAll(async () => {
  await stand.close()
})
beforeEach(async () => {
  stand.answer((id, _req, res) =>
    id.endsWith('.svg') ? void res.writeHead(200, { 'content-type': 'image/svg+xml' }).end(svg) : json(res, 503, {}),
  )
  const its = await withReceiver({ providerUrl: stand.url })
  ;({ database, receiver } = its)
  return its.stop
})
// A page that refreshes itself must not outlive what it asks.
afterEach(() => takeAllBack(browser))

/** A picture that the browser finds. */
const shown = (id: string) => ({
  request_id: id,
  status: 'OK',
  payload: { model: 'aurora-image', output: { images: [{ url: `${stand.url}/${id}.svg` }] }, cost: 4 },
})
const svg = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 3"/>'

const open = (path = '') => openPage(browser, `${receiver.internalUrl}${path}`)
const wrong = (page: Page) => page.getByRole('region', { name: 'What is wrong' })
const causes = (page: Page) =>
  wrong(page)
    .locator('li')
    .evaluateAll((items) => items.map((item) => `${item.className} ${item.getAttribute('data-cause')}`))
const tile = async (page: Page, label: string) =>
  (await page.locator('a.tile', { hasText: label }).innerText()).replaceAll(/\s+/g, ' ')
const settled = () => eventually(async () => (await database.sql`select from mediadock.inbox`).length === 0)
const rows = (table: string, count: number) =>
  eventually(async () => (await database.sql`select from ${database.sql(`mediadock.${table}`)}`).length >= count)

it.runIf(long)('a scanner is a notice with its senders; refusals of the provider stand out', async () => {
  for (let n = 0; n < 4; n += 1) await deliver(receiver.webhookUrl, okAudio().body)
  await rows('known_senders', 1)
  await Promise.all(
    Array.from({ length: 60 }, () =>
      fetch(receiver.webhookUrl, {
        method: 'POST',
        headers: {
          'x-service-webhook-id': randomUUID(),
          'x-forwarded-for': `203.0.113.${Math.floor(Math.random() * 3)}`,
        },
        body: JSON.stringify({ request_id: randomUUID(), status: 'OK' }),
      }),
    ),
  )
  await rows('quarantine', 60)
  const page = await open()
  await page.getByText(/^60 arrivals with a missing or wrong signature in 5 minutes\./).waitFor()
  expect(await causes(page)).toEqual(['notice strangers'])
  expect(await page.getByRole('region', { name: 'Failed webhooks' }).count()).toBe(0)
  await shoot(page, 'look-scanner')

  // Among them one about a request of ours, signed with a secret that is not here.
  const known = await track(database)
  await deliver(receiver.webhookUrl, okImage(known).body, { secret: 'whsec_of_the_new_key' })
  await rows('quarantine', 61)
  await eventually(async () => (await causes(page)).join() === 'critical refused:no_matching_secret,notice strangers')
  await page.getByText(/^\d+ of \d+ arrivals? in the last 5 minutes (was|were) refused: no secret matches\.$/).waitFor()
  const clock = page.getByRole('region', { name: 'Failed webhooks' })
  expect(await clock.locator('tbody tr').count()).toBe(1)
  expect(await clock.innerText()).toContain('1 of 6')
})

it.runIf(long)('an unreachable provider is shown on the first page, and no run is green meanwhile', async () => {
  for (const id of [randomUUID(), randomUUID(), randomUUID()])
    await deliver(receiver.webhookUrl, Buffer.from(JSON.stringify(shown(id))))
  await settled()
  await receiver.deps.background.reconcileNow()
  await rows('polls', 3)
  const page = await open()
  const banner = wrong(page).locator('[data-cause=provider_unreachable]')
  await banner.getByText(/^The provider has given no usable answer since \d\d:\d\d \(answered 503\)\.$/).waitFor()
  await banner.getByText(/^3 results are not complete\. Polls go on: one about every 5 s/).waitFor()
  await shoot(page, 'look-provider')
  await track(database, { ago: 600 })
  await banner.getByRole('link').click()
  await page
    .getByText(/^The provider has given no usable answer since .* calls in a row failed, the last: answered 503\./)
    .waitFor()
  await page.getByRole('button', { name: 'Run now' }).click()
  await page.getByRole('cell', { name: 'by hand' }).nth(1).waitFor()
  expect(await page.getByRole('group', { name: 'Runs' }).locator('tbody tr').first().innerText()).toMatch(
    /failed polls|postponed/,
  )
  expect(await page.locator('.badge.good').count()).toBe(0)
  await shoot(page, 'look-provider-runs')
})

it.runIf(long)("contradicting webhooks are on the first page until the provider's result decides", async () => {
  const { requestId, body } = okAudio()
  await deliver(receiver.webhookUrl, body)
  await settled()
  await deliver(receiver.webhookUrl, failed(requestId).body)
  await settled()
  // Its picture is at a link that nobody serves.
  const page = await openPage(browser, receiver.internalUrl, { expectProblems: true })
  const banner = wrong(page).locator('[data-cause=contradiction]')
  await banner.getByText(/^1 webhook contradicts the stored result/).waitFor()
  await banner.getByRole('link').click()
  // One has its own page; more are listed.
  await page.waitForURL(`**/requests/${requestId}`)
  await page.goto(`${receiver.internalUrl}requests?contradiction=true`)
  expect(await page.getByRole('group', { name: 'Requests' }).locator('tbody tr').count()).toBe(1)
})

it.runIf(long)('counts arrivals that were answered 503 apart from refused ones', async () => {
  const proxy = await startPostgresProxy(database.url)
  const behind = await startTestReceiver({ databaseUrl: proxy.url })
  onTestFinished(() => behind.stop())
  proxy.swallowAfter(0)
  expect((await deliver(behind.webhookUrl, okAudio().body)).status).toBe(503)
  proxy.passOn()
  proxy.cut()
  await rows('arrivals', 1)
  const page = await open()
  await eventually(async () => /^Answered 503 in 5 min 1 .*: 1 /.test(await tile(page, 'Answered 503')))
  expect(await tile(page, 'Refused')).toBe('Refused in 5 min 0 none')
})

it.runIf(long)(
  'a bad deploy parks deliveries that a trigger refuses: the dry run reports it, and after the fix another replica replays them',
  async () => {
    const { sql } = database
    for (let n = 0; n < 30; n += 1) await deliver(receiver.webhookUrl, okAudio().body)
    await settled()
    await sql`delete from mediadock.media`
    await sql`delete from mediadock.requests`
    await sql`update mediadock.deliveries set parked_reason = 'landing_failed'`
    await sql.unsafe(`create function refuse() returns trigger language plpgsql as $$ begin raise exception 'the ledger is closed'; end $$;
    create constraint trigger refuse after insert on mediadock.requests deferrable initially deferred for each row execute function refuse()`)

    const page = await open()
    const banner = wrong(page).locator('[data-cause="parked:landing_failed"]')
    await banner.getByText(/^30 deliveries parked in the last hour/).waitFor()
    await banner.getByRole('link').click()
    await page.getByRole('link', { name: 'Replay all that match…' }).click()
    await page.getByText('A dry run of the newest 20 of them: all 20 would fail. Nothing has been changed.').waitFor()
    const said = page.getByText('the ledger is closed')
    expect(await said.count()).toBe(1)
    expect(await page.locator('.failures').innerText()).toMatch(
      /^20 deliveries: Postgres refuses its rows: the ledger is closed \(P0001\)/,
    )
    await shoot(page, 'look-replay-refused')
    await page.getByRole('button', { name: 'Replay 30 anyway' }).click()
    await page.getByText('0 replayed, 30 parked again for the reasons below.').waitFor()
    expect(await said.count()).toBe(1)
    expect(await page.locator('.failures').innerText()).toMatch(/^30 deliveries: /)
    await shoot(page, 'look-replay-failed')

    // Outside: the trigger is fixed. The replica on which one is working ends, and another is looked at.
    await sql`drop trigger refuse on mediadock.requests`
    await page.getByRole('link', { name: 'To the deliveries' }).click()
    await page.getByRole('link', { name: 'Replay all that match…' }).click()
    await page.getByText('A dry run of the newest 20 of them: 20 would change what is stored').waitFor()
    const button = page.getByRole('button', { name: 'Replay 30' })
    const below = await page.evaluate(
      `(() => { const y = (selector) => document.querySelector(selector).getBoundingClientRect().top; return y('.confirm > .inline') > y('details.change') })()`,
    )
    expect(below).toBe(true)
    await button.click()
    await page.getByText('30 replayed, 30 changed something.').waitFor()
    expect(await sql`select from mediadock.results where landed_at is not null`).toHaveLength(30)
    const other = await startTestReceiver({ databaseUrl: database.url, providerUrl: stand.url })
    onTestFinished(() => other.stop())
    const there = await openPage(browser, `${other.internalUrl}${new URL(page.url()).pathname.slice(1)}`)
    await there.getByText('30 replayed, 30 changed something.').waitFor()
    const audit = await sql`select detail from mediadock.audit where action = 'replay_many' order by id desc limit 1`
    expect(audit[0]?.['detail']).toMatchObject({ count: 30, requeued: 30 })
  },
)

it.runIf(long)('a silent reconciler is critical, and one click runs it', async () => {
  const hourly = await startTestReceiver({
    databaseUrl: database.url,
    providerUrl: stand.url,
    settings: { reconcileCron: '0 * * * *' },
  })
  onTestFinished(() => hourly.stop())
  hourly.setNow(new Date(Date.now() + 6 * 3_600_000))
  const page = await openPage(browser, hourly.internalUrl)
  const banner = wrong(page).locator('[data-cause=reconciler_silent]')
  await banner.getByText(/^The reconciler has not run for more than \d+ h\.$/).waitFor()
  await banner.getByRole('link').click()
  await page.getByRole('button', { name: 'Run now' }).click()
  await page.getByRole('cell', { name: 'by hand' }).waitFor()
  await page.getByRole('link', { name: 'Now', exact: true }).click()
  await wrong(page).getByText('Nothing is wrong').waitFor()
})

it.runIf(long)("a spent quota names the key, and links to each key's remaining calls", async () => {
  await database.sql`insert into mediadock.call_budgets (key_name, slots, slots_until, granted)
    values ('live', array_prepend(100000, array_fill(0, array[60])), extract(epoch from now())::bigint, false)`
  const page = await open()
  const banner = wrong(page).locator('[data-cause="quota_spent:live"]')
  await banner.getByText(/^The key live has made 100000 calls in the last minute: no more are allowed\.$/).waitFor()
  expect(await tile(page, 'API calls left')).toMatch(/^API calls left 0 this minute, key live /)
  await banner.getByRole('link').click()
  await page.waitForURL('**/keys')
})

it('a delivery that keeps failing shows why it waits', async () => {
  const id = await track(database)
  const held = Promise.withResolvers<void>()
  const locked = Promise.withResolvers<void>()
  const holding = database.sql.begin(async (sql) => {
    await sql`select from mediadock.requests where request_id = ${id} for update`
    locked.resolve()
    await held.promise
  })
  await locked.promise
  await deliver(receiver.webhookUrl, okAudio(id).body)
  await eventually(async () => (await database.sql`select from mediadock.inbox where trouble is not null`).length === 1)
  const [delivery] = await database.sql`select id from mediadock.deliveries`
  const page = await open(`deliveries/${delivery?.['id']}`)
  const lead = await page.locator('.lead').innerText()
  expect(lead).toMatch(
    /It was tried (once|\d+ times) and could not be landed: an open transaction locks the row of its request\./,
  )
  expect(lead).not.toContain('Nothing to do.')
  held.resolve()
  await holding
  await settled()
})

it('explains how keys are changed for the present configuration only', async () => {
  await deliver(receiver.webhookUrl, okAudio().body, { secret: 'whsec_of_nobody' })
  await rows('quarantine', 1)
  const file = await startTestReceiver({ databaseUrl: database.url, settings: { keysFile: '/run/secrets/keys.json' } })
  onTestFinished(() => file.stop())
  const demo = await startTestReceiver({
    databaseUrl: database.url,
    settings: { demoKeysFile: '/srv/.data/demo-keys.json' },
  })
  onTestFinished(() => demo.stop())
  const told = async (of: TestReceiver, path: string) => (await fetch(`${of.internalUrl}${path}`)).text()
  for (const path of ['parked', 'parked?reason=no_matching_secret', 'parked/verify', 'keys']) {
    const [here, there] = [await told(receiver, path), await told(file, path)]
    expect([
      path,
      here.includes('change it and restart the receiver'),
      here.includes('send the receiver SIGHUP'),
    ]).toEqual([path, true, false])
    expect([
      path,
      there.includes('change it and send the receiver SIGHUP'),
      there.includes('restart the receiver'),
    ]).toEqual([path, true, false])
    const shown = await told(demo, path)
    expect(shown).toContain('These are the demo keys of /srv/.data/demo-keys.json.')
    expect(shown).not.toContain('Keys come from')
  }
})

it('a run that Postgres refuses shows an explanation, never the SQL', async () => {
  await track(database, { ago: 600 })
  await database.sql
    .unsafe(`create function full_disk() returns trigger language plpgsql as $$ begin raise exception 'no space left' using errcode = '53100'; end $$;
    create trigger full_disk before update on mediadock.requests for each row execute function full_disk()`)
  await receiver.deps.background.reconcileNow().catch(() => {})
  const page = await open('reconciler')
  await page.getByText('Postgres says: no space left (53100)').waitFor()
  expect(await page.locator('main').innerText()).not.toMatch(/Failed query|update mediadock/)
})

it('replaces a picture that cannot be loaded by a sentence, which stays while the page refreshes', async () => {
  const id = randomUUID()
  const gone = {
    ...shown(id),
    payload: { ...shown(id).payload, output: { images: [{ url: `${stand.url}/${id}.gone` }] } },
  }
  await deliver(receiver.webhookUrl, Buffer.from(JSON.stringify(gone)))
  await settled()
  const page = await openPage(browser, receiver.internalUrl, { expectProblems: true })
  const picture = page.getByAltText(`Result of ${id}`)
  await page.getByRole('heading', { name: 'Latest results' }).scrollIntoViewIfNeeded()
  const note = page.getByText('This picture is not available at its link.')
  await note.waitFor()
  await page.waitForResponse('**/now')
  await page.waitForResponse('**/now')
  expect(await note.count()).toBe(1)
  expect(await picture.count()).toBe(0)
})

it('a problem is an issue with its start; it can be muted, and remains listed when closed', async () => {
  await deliver(receiver.webhookUrl, Buffer.from('no JSON'))
  await settled()
  receiver.deps.wake('issues')
  await rows('issues', 1)
  const page = await open()
  const banner = wrong(page).locator('[data-cause="parked:not_json"]')
  await eventually(async () => /for \d+\ss\s/.test(await banner.innerText()))
  await page.getByRole('link', { name: 'Issues', exact: true }).click()
  await page.getByText('1 delivery parked in the last hour: not JSON.').waitFor()
  await shoot(page, 'look-issues')
  await page.getByRole('button', { name: 'Mute 4 h' }).click()
  await page.getByRole('button', { name: 'Unmute' }).waitFor()
  await page.getByRole('link', { name: 'Now', exact: true }).click()
  await wrong(page).getByText('Nothing else is wrong').waitFor()
  await wrong(page).getByText('One issue is muted').waitFor()
  await shoot(page, 'look-muted')
  // It is replayed, or pruned: what was wrong is over a minute later.
  await database.sql`delete from mediadock.deliveries`
  await database.sql`update mediadock.issues set seen_at = now() - interval '2 minutes'`
  receiver.deps.wake('issues')
  await eventually(
    async () => (await database.sql`select from mediadock.issues where closed_at is not null`).length === 1,
  )
  await page.goto(`${receiver.internalUrl}issues?state=closed`)
  expect(await page.locator('[data-rows] tr').innerText()).toMatch(/closed[\s\S]*1 delivery parked/)
})
