import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import type { Browser, Page } from 'playwright-core'
import { afterEach, beforeAll, expect, it, onTestFinished } from 'vitest'
import { call } from '../receiver/api/calls.ts'
import { startSubscriber } from '../receiver/subscriptions/support/subscriber.ts'
import { sharedBrowser } from '../support/browser.ts'
import { withTestDatabase, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { json } from '../support/provider-stand.ts'
import { startTestReceiver, type TestReceiver, type TestReceiverOptions } from '../support/receiver.ts'
import { deliver, nowSeconds, okImage, type Delivery } from '../support/webhooks.ts'
import { openPage, shoot } from './support/console.ts'
import { takeAllBack, wideViewport } from './support/lent-pages.ts'
import { completed, startWorld, track, type World } from './support/request-world.ts'

// Things that go wrong at a receiver in ordinary traffic, each looked at
// as the on-call would: the first page names the cause once, and the page behind
// its one action says what to do.

type Place = {
  database: TestDatabase
  world: World
  receiver: TestReceiver
  /** Posts the webhook of a tracked request that the provider would confirm. */
  land: (output?: object, delivery?: Delivery) => Promise<string>
  settled: () => Promise<unknown>
}

type Drill = {
  name: string
  settings?: () => Promise<NonNullable<TestReceiverOptions['settings']>>
  goesWrong: (place: Place) => Promise<unknown>
  /** The alarms of the first page, worst first. */
  alarms: readonly string[]
  /** The text of the alarm. */
  says: RegExp
  /** The text of the page behind the alarm. */
  behind: RegExp
  /** The text of the page of the first request in that list. */
  first?: RegExp
}

const internalToken = 'a token of the drills, 32 characters long'
const rows = ({ database }: Place, table: string, count: number) =>
  eventually(async () => (await database.sql`select from ${database.sql(`mediadock.${table}`)}`).length >= count)

/** Moves the results that landed so far, and their webhooks, 10 minutes back. */
async function makeOlder(place: Place): Promise<void> {
  const { sql } = place.database
  await place.settled()
  const results = await sql`select from mediadock.requests`
  await rows(place, 'arrivals', results.length)
  const ten = sql`interval '10 minutes'`
  await sql`update mediadock.requests set landed_at = landed_at - ${ten}, tracked_at = tracked_at - ${ten},
    created_at = created_at - ${ten}, completed_at = completed_at - ${ten}`
  await sql`update mediadock.deliveries set received_at = received_at - ${ten}`
  await sql`update mediadock.arrivals set arrived_at = arrived_at - ${ten}`
  // The chart reads minutes of that age from the figures that a receiver wrote then.
  await sql`delete from mediadock.arrival_counts`
  await sql`delete from mediadock.minutes`
  await sql`insert into mediadock.minutes (minute, written_at, arrivals, ack_p50_ms, ack_p95_ms, landed, landing_p50_seconds,
      landing_p95_seconds, inbox_pending, inbox_oldest_seconds, overdue)
    select date_trunc('minute', now()) - ${ten}, now(), jsonb_build_object('accepted', ${results.length}::int), 3, 9, ${results.length},
      0.5, 1.2, 0, 0, 0`
}

const submit = (receiver: TestReceiver) =>
  call(receiver, 'POST /api/generations', { body: { model: 'aurora-image', input: {}, metadata: { order: 42 } } })

/** Postgres refuses results, as a trigger of a reader may. */
const refusing = ({ database }: Place, condition: string) =>
  database.sql.unsafe(`create schema shop;
    create function shop.take_order() returns trigger language plpgsql as $$ begin
      if ${condition} then raise exception 'shop.orders has no order for request %', new.request_id; end if; return null; end $$;
    create trigger take_order after insert or update on mediadock.requests for each row when (new.landed_at is not null) execute function shop.take_order()`)

/** Five tries take some minutes; here each is due at once. */
const untilParked = ({ database, receiver }: Place, count: number) =>
  eventually(async () => {
    await database.sql`update mediadock.inbox set due_at = now()`
    receiver.deps.roles.wake('inbox')
    const parked = await database.sql`select from mediadock.deliveries where parked_reason = 'landing_failed'`
    return parked.length >= count
  })

const drills: Drill[] = [
  {
    name: 'stale-client',
    settings: async () => ({ internalToken }),
    goesWrong: async ({ receiver }) => {
      for (let n = 0; n < 15; n += 1)
        await call(receiver, 'GET /api/stats', { headers: { authorization: 'Bearer an-old-token-of-a-client' } })
    },
    alarms: ['wrong_tokens'],
    says: /A client at 127\.0\.0\.1 calls with a wrong INTERNAL_TOKEN, perhaps an old one\. The last call was GET \/api\/stats .* If it is yours, give it the current token\. Its further wrong tokens are answered 429 until \d\d:\d\d:\d\d\./,
    behind: /127\.0\.0\.1[\s\S]*1 address/,
  },
  {
    name: 'contradiction',
    goesWrong: async (place) => {
      const { world, receiver, settled } = place
      const requestId = await track(place.database, { ago: 20 })
      // Before the webhook: a poll that the live key answers 404 would take the result from the sandbox key.
      world.says(requestId, completed(requestId, { images: [{ url: world.media('a.svg'), width: 4, height: 3 }] }))
      await deliver(receiver.webhookUrl, okImage(requestId).body)
      await settled()
      const body = { request_id: requestId, status: 'ERROR', error: { code: 'GENERATION_FAILED', message: 'no' } }
      await deliver(receiver.webhookUrl, Buffer.from(JSON.stringify(body)))
      await settled()
    },
    alarms: ['contradiction_decided'],
    says: /1 webhook of the last hour says ERROR, but the provider's own result is COMPLETED\. That result stands\./,
    behind: /COMPLETED stands\. .*[\s\S]*FAILED \(status ERROR\)[\s\S]*not applied/,
  },
  {
    name: 'trigger-raises',
    goesWrong: async (place) => {
      await makeOlder(place)
      await refusing(place, `new.model = 'aurora-image'`)
      for (let n = 0; n < 3; n += 1) await place.land()
      await untilParked(place, 3)
    },
    alarms: ['parked:landing_failed'],
    says: /3 deliveries parked .*aurora-image\. The same error 3 times, the newest: shop\.orders has no order for request [0-9a-f-]{36} \(P0001\), function shop\.take_order\(\), trigger take_order on mediadock\.requests\. .*No result of aurora-image has landed since the first of these arrived\. The deliveries are kept\. Fix the cause, then replay\./,
    behind:
      /trigger take_order on mediadock\.requests\s+3× aurora-image\. No result of aurora-image has landed since[\s\S]*Look up the data[\s\S]*kept until they land/,
  },
  {
    name: 'secret-rotated',
    goesWrong: async (place) => {
      for (let n = 0; n < 5; n += 1) await place.land(undefined, { secret: 'whsec_of_the_new_key' })
      await rows(place, 'quarantine', 5)
    },
    alarms: ['refused:no_matching_secret'],
    says: /5 of \d+ arrivals in the last 5 minutes were refused: no secret matches\. .*All 5 are for our own requests of the key live, which wait for their results: the key's secret was probably replaced at the provider\. The provider's final attempt for the first of these is in 1[45] min\. Add the key with its new secret beside the old one, then verify them again\./,
    behind:
      /Copy the key's signing secret from the provider, and add it to the configured keys beside the old one\. .*verify these again: authentic ones land at once\. Later attempts of the provider are accepted too[\s\S]*For our own requests\s+5, all of the key live\s+Provider's final attempt\s+from .*\d\d:\d\d:\d\d on/,
  },
  {
    name: 'provider-unreachable',
    // Its own runs are far away: only those of the drill are seen.
    settings: async () => ({ reconcileCron: '0 * * * *' }),
    goesWrong: async ({ world, database, receiver }) => {
      world.answer((_id, req) => void req.socket.destroy())
      for (let n = 0; n < 5; n += 1) await track(database, { ago: 400 })
      await submit(receiver)
      await receiver.deps.background.reconcileNow()
      await receiver.deps.background.reconcileNow()
    },
    alarms: ['provider_unreachable'],
    says: /The provider has given no usable answer since [^.]* \(the connection was closed without an answer\)\. .* GENERATION_API_URL \(http.* Nothing is lost: results wait at the provider, and 1 submit waits here\./,
    behind:
      /Overdue requests wait for their next poll, and a run now would not poll them\. 5 requests overdue\.[\s\S]*nothing polled[\s\S]*the next run of this replica[\s\S]*5\s+overdue requests wait for their next poll\s+1\s+submit waits for an answer\s+0\s+results are incomplete(?!;)/,
  },
  {
    name: 'media-404',
    settings: async () => ({ mediaArchive: { kind: 'file', root: await folder() } }),
    goesWrong: async (place) => {
      const { world, land } = place
      await land({ images: [{ url: `${world.url}/gone-1.png`, width: 4, height: 3 }] })
      await land({ video: { url: `${world.url}/gone-2.webm`, width: 4, height: 3, duration: 1 } })
      await eventually(async () => {
        await place.database
          .sql`update mediadock.media_copies set due_at = now() where state = 'waiting' and fault = 'gone'`
        return (await place.database.sql`select from mediadock.media_copies where state = 'failed'`).length >= 2
      })
    },
    alarms: ['media_gone'],
    says: /no longer serves 2 media .*: .*404\. .*No copy exists/,
    behind: /(COMPLETED[\s\S]*1 of 1, 1 gone[\s\S]*){2}/,
    first:
      /Its media is gone at the provider, and no copy exists\.[\s\S]*1 of 1, 1 gone: the list of media is complete\.[\s\S]*no copy exists: .*404/,
  },
  {
    name: 'poisoned-row',
    goesWrong: async (place) => {
      const guilty = await track(place.database, { ago: 20 })
      await refusing(place, `new.request_id = '${guilty}'`)
      await deliver(place.receiver.webhookUrl, okImage(guilty).body)
      for (let n = 0; n < 5; n += 1) await place.land()
      await untilParked(place, 1)
    },
    alarms: ['parked:landing_failed'],
    says: /1 delivery parked in the last hour: .* Other results of aurora-image land: look at what differs in this one\. The delivery is kept\./,
    behind: /Other results of aurora-image land: look at what differs in this one\.[\s\S]*kept until they land/,
  },
  {
    name: 'lost-webhooks',
    goesWrong: async ({ world, receiver, database, settled }) => {
      const minutesAgo = (minutes: number) => receiver.setNow(new Date(Date.now() - minutes * 60_000))
      minutesAgo(40)
      const reported = (await submit(receiver)).json.request_id
      await deliver(receiver.webhookUrl, okImage(reported).body, { t: nowSeconds() - 40 * 60 })
      await settled()
      await database.sql`update mediadock.requests set landed_at = now() - interval '40 min' where request_id = ${reported}`
      await database.sql`insert into mediadock.minutes (minute, written_at, arrivals, landed)
        values (date_trunc('minute', now() - interval '40 min'), now(), '{"accepted": 1}', 1)`
      minutesAgo(12)
      for (let n = 0; n < 6; n += 1) {
        const { json } = await submit(receiver)
        world.says(json.request_id, completed(json.request_id, picture(world, n), 12 * 60 - 10))
      }
      minutesAgo(8)
      await receiver.deps.background.reconcileNow()
      receiver.setNow(undefined)
    },
    alarms: ['webhooks_missing'],
    says: /No webhook came for the last 6 results .* The last webhook for such a request came at [-\d ]*\d\d:\d\d; webhooks since then are for other requests\. These 6 results landed up to 4 min after their end, and none is lost\. .* Send a sample there, which lands as the result of a new request\. If none appears, the address probably leads elsewhere\. Run this with the receiver's keys in the environment: mediadock trigger ok --url https:\/\/hooks\.example\.com\/webhooks/,
    behind: /(COMPLETED[\s\S]*){6}/,
    first:
      /landed 4\smin after its end[\s\S]*First webhook\s+none[\s\S]*now https:\/\/hooks\.example\.com\/webhooks\. Check .*: mediadock trigger ok --url https:\/\/hooks/,
  },
  {
    name: 'strangers',
    goesWrong: async (place) => {
      for (let n = 0; n < 30; n += 1)
        await fetch(place.receiver.webhookUrl, {
          method: 'POST',
          headers: { 'x-service-webhook-id': `scan-${n}`, 'x-forwarded-for': `203.0.113.${n % 3}` },
          body: '{}',
        })
      await rows(place, 'quarantine', 30)
    },
    alarms: ['strangers'],
    says: /30 arrivals with a missing or wrong signature in 5 minutes, from 3 addresses: 203.* none that is kept names a known request: nothing to do\./,
    behind: /203\.0\.113/,
  },
  {
    name: 'credits-spent',
    goesWrong: async ({ world, receiver }) => {
      world.answer((_id, _req, res) =>
        json(res, 402, { error: { type: 'billing_error', code: 'insufficient_credits', message: 'no credits left' } }),
      )
      for (let n = 0; n < 3; n += 1) await submit(receiver)
    },
    alarms: ['credits_spent:live'],
    says: /The account of the key live has too few credits: 3 submits were refused in the last hour .*Polling and landing continue\. This alarm ends an hour after the last refusal\./,
    behind:
      /Add credits at the provider[\s\S]*Refused submits([\s\S]*402 insufficient_credits\s+no credits left[\s\S]*"order": 42){3}/,
  },
  {
    name: 'submits-refused',
    goesWrong: async ({ world, receiver }) => {
      const error = { type: 'invalid_request_error', code: 'invalid_input', message: 'no such style' }
      world.answer((_id, _req, res) => json(res, 422, { error }))
      for (let n = 0; n < 2; n += 1) await submit(receiver)
    },
    alarms: ['submits_refused'],
    says: /The provider refused 2 submits in the last hour, .*: 422 invalid_input 2× with the key live\./,
    behind: /Refused submits([\s\S]*422 invalid_input\s+no such style[\s\S]*"order": 42){2}/,
  },
  {
    name: 'quota-spent',
    settings: async () => ({ fetchRatePerMinute: 12 }),
    goesWrong: async ({ world, database, receiver }) => {
      for (let n = 0; n < 9; n += 1) {
        const id = await track(database, { ago: 400 })
        world.says(id, completed(id, picture(world, n)))
      }
      await receiver.deps.background.reconcileNow()
    },
    alarms: ['overdue'],
    says: /overdue: .* the calls for polls in this minute are used up\. .* Nothing is lost\. If the number grows, raise FETCH_RATE_PER_MINUTE \(now 12\)/,
    behind: /poll postponed\s+the calls for polls in this minute are used up/,
  },
  {
    name: 'archive-full',
    settings: async () => ({ mediaArchive: { kind: 'file', root: await fullFolder() } }),
    goesWrong: async (place) => {
      const { world, land } = place
      for (let n = 0; n < 3; n += 1) await land(picture(world, n))
      await eventually(async () => {
        const copies = await place.database.sql`select from mediadock.media_copies where state = 'waiting'`
        const failed = await place.database.sql`select from mediadock.media_copies where fault = 'store'`
        return copies.length === 11 && failed.length >= 1
      })
    },
    alarms: ['archive_store'],
    says: /The archive cannot be written, and 11 media wait for a copy\. The error: .*\. It is unknown when their links end.*; copying then continues\./,
    behind: /(COMPLETED[\s\S]*){11}/,
  },
  {
    name: 'subscriber-500',
    goesWrong: async (place) => {
      const subscriber = await startSubscriber()
      subscriber.answer(() => 500)
      await call(place.receiver, 'POST /api/subscriptions', { body: { name: 'shop', url: subscriber.url } })
      for (let n = 0; n < 3; n += 1) await place.land()
      await makeOlder(place)
      await eventually(async () => subscriber.posted.length >= 2)
      await place.database
        .sql`update mediadock.subscriptions set failing_since = now() - interval '10 minutes', failures = 8`
      await place.database.sql`update mediadock.feed_entries set changed_at = changed_at - interval '10 minutes'`
    },
    alarms: ['subscription_failing:shop'],
    says: /the subscription “shop” since .*500.* \d+ changes wait, and posts are retried\. Check the service\. After 24 h .* its changes wait until an operator resumes it, for at most 30 days \(RETENTION_DAYS\)\./,
    behind: /oldest 10\smin[\s\S]*\d failures?, the first 10\smin ago, .* Stops at/,
  },
]

async function folder(): Promise<string> {
  const root = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-drill-'))
  onTestFinished(() => fs.rm(root, { recursive: true, force: true }))
  return root
}

const run = promisify(execFile)

/** A full disk. Mounting one takes a privileged user; without one, a file stands where the folder should be. */
async function fullFolder(): Promise<string> {
  const root = await folder()
  try {
    await run('mount', ['-t', 'tmpfs', '-o', 'size=4k', 'tmpfs', root])
  } catch {
    const file = path.join(root, 'archive')
    await fs.writeFile(file, '')
    return file
  }
  onTestFinished(async () => void (await run('umount', [root])))
  return root
}

const picture = (world: World, n: number) => ({
  images: [{ url: world.media(`image-${n % 4}.webp`), width: 1024, height: 768 }],
})

let browser: Browser
beforeAll(async () => {
  browser = await sharedBrowser()
})
afterEach(() => takeAllBack(browser))

const wrong = (page: Page) => page.getByRole('region', { name: 'What is wrong' })
const causes = (page: Page) =>
  wrong(page)
    .locator('li')
    .evaluateAll((items) => items.map((item) => item.getAttribute('data-cause')))

async function startPlace({ settings }: Pick<Drill, 'settings'>): Promise<Place> {
  const database = await withTestDatabase()
  const world = await startWorld()
  const receiver = await startTestReceiver({
    databaseUrl: database.url,
    providerUrl: world.url,
    settings: { webhookPublicUrl: 'https://hooks.example.com/webhooks', ...(await settings?.()) },
    followsUp: true,
  })
  onTestFinished(async () => {
    await receiver.stop()
    await world.close()
  })
  const settled = () => eventually(async () => (await database.sql`select from mediadock.inbox`).length === 0)
  let landed = 0
  const land: Place['land'] = async (output, delivery) => {
    const id = await track(database, { ago: 12 })
    const whole = output ?? picture(world, (landed += 1))
    world.says(id, completed(id, whole))
    const body = { request_id: id, status: 'OK', payload: { model: 'aurora-image', output: whole, cost: 4 } }
    await deliver(receiver.webhookUrl, Buffer.from(JSON.stringify(body)), delivery)
    return id
  }
  const place = { database, world, receiver, land, settled }
  for (let n = 0; n < 8; n += 1) await land()
  await rows(place, 'known_senders', 1)
  await settled()
  await eventually(
    async () => (await database.sql`select from mediadock.requests where not media_complete`).length === 0,
  )
  return place
}

it('takes two screens at most while all is well', async () => {
  const { receiver } = await startPlace({})
  const page = await openPage(browser, receiver.internalUrl, { expectProblems: true })
  await wrong(page).getByText('Nothing is wrong').waitFor()
  await page.locator('.result').nth(5).waitFor()
  expect(await page.locator('tr').count()).toBeGreaterThan(5)
  await shoot(page, 'now-all-is-well')
  const [results, link] = await Promise.all([
    page.locator('.results').boundingBox(),
    page.getByRole('link', { name: 'All requests' }).boundingBox(),
  ])
  expect((link?.y ?? 0) - (results?.y ?? 0) - (results?.height ?? 0)).toBeGreaterThanOrEqual(8)
  expect(await page.evaluate('document.documentElement.scrollHeight')).toBeLessThanOrEqual(2 * wideViewport.height)
})

it('shows an archived picture that has no thumbnail itself', async () => {
  const { database, receiver } = await startPlace({
    settings: async () => ({ mediaArchive: { kind: 'file', root: await folder() } }),
  })
  await eventually(async () => (await database.sql`select from mediadock.media where sha256 is not null`).length >= 8)
  await database.sql`update mediadock.archived_files set has_thumbnail = false`
  const page = await openPage(browser, receiver.internalUrl, { expectProblems: true })

  await page.getByRole('heading', { name: 'Latest results' }).scrollIntoViewIfNeeded()
  const loaded = `[...document.querySelectorAll('.results img')].filter((one) => one.naturalWidth > 0).length`
  await expect.poll(() => page.evaluate(loaded)).toBe(6)
})

it.for(drills)('$name', async (drill) => {
  const place = await startPlace(drill)
  const { receiver } = place
  await drill.goesWrong(place)
  const page = await openPage(browser, receiver.internalUrl, { expectProblems: true })
  if (await page.getByLabel('Token').isVisible()) {
    await page.getByLabel('Token').fill(internalToken)
    await page.getByRole('button', { name: 'Sign in' }).click()
  }
  receiver.deps.roles.wake('issues')
  await expect.poll(() => causes(page)).toEqual(drill.alarms)
  await shoot(page, `drill-${drill.name}-1`)
  await expect.poll(async () => (await wrong(page).innerText()).replaceAll(/\s+/g, ' ')).toMatch(drill.says)
  await wrong(page).locator('li').first().getByRole('link').last().click()
  // A problem is on the first page at once, and an issue from the next round of the role on.
  const behind = async () => {
    const text = await page.locator('main').innerText()
    if (!drill.behind.test(text)) await page.reload()
    return text
  }
  await expect.poll(behind).toMatch(drill.behind)
  await shoot(page, `drill-${drill.name}-2`)
  if (drill.first === undefined) return
  await page.goto(new URL((await page.locator('tbody a').first().getAttribute('href')) ?? '', page.url()).href)
  expect(await page.locator('main').innerText()).toMatch(drill.first)
  await shoot(page, `drill-${drill.name}-3`)
})
