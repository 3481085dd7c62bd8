import { afterEach, it, onTestFinished } from 'vitest'
import { call } from '../receiver/api/calls.ts'
import { sharedBrowser } from '../support/browser.ts'
import { eventually } from '../support/eventually.ts'
import { deliver, nowSeconds, okImage } from '../support/webhooks.ts'
import { internalToken, makeOlder, picture, rows, runDrill, submit, type Drill, type Place } from './support/drill.ts'
import { takeAllBack } from './support/lent-pages.ts'
import { completed, track } from './support/request-world.ts'

afterEach(async () => takeAllBack(await sharedBrowser()))

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
    receiver.deps.wake('inbox')
    const parked = await database.sql`select from mediadock.deliveries where parked_reason = 'landing_failed'`
    return parked.length >= count
  })

/** Of webhooks and those who call. */
const drills: Drill[] = [
  {
    name: 'stale-client',
    settings: async () => ({ internalToken }),
    goesWrong: async ({ receiver }) => {
      const askWrongly = () =>
        call(receiver, 'GET /api/stats', { headers: { authorization: 'Bearer an-old-token-of-a-client' } })
      for (let n = 0; n < 15; n += 1) await askWrongly()
      // Such a client goes on, so that the alarm lasts also where a browser takes a minute to open the page.
      const client = setInterval(() => void askWrongly().catch(() => {}), 500)
      onTestFinished(() => clearInterval(client))
    },
    alarms: ['wrong_tokens'],
    says: /A client at 127\.0\.0\.1 calls with a wrong INTERNAL_TOKEN, perhaps an old one\. The last call was GET \/api\/stats .* If it is yours, give it the current token\. Its further wrong tokens are answered 429 until \d\d:\d\d:\d\d\./,
    behind: /wrong_tokens · 127\.0\.0\.1/,
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
    says: /1 webhook contradicts the provider's own result, which stands\./,
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
      /landed 4\smin after its end[\s\S]*now https:\/\/hooks\.example\.com\/webhooks\. Check .*: mediadock trigger ok --url https:\/\/hooks/,
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
    says: /30 arrivals with a missing or wrong signature in 5 minutes\. .* none that is kept names a known request: nothing to do\./,
    behind: /203\.0\.113/,
  },
]

it.for(drills)('$name', runDrill)
