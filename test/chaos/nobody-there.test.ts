import { setTimeout as delay } from 'node:timers/promises'
import { it, onTestFinished } from 'vitest'
import { freePort } from '../provider/support/free-port.ts'
import { startTestProvider } from '../provider/support/running-provider.ts'
import { preferredServer, withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { long } from './length.ts'
import { withReceiverProcess } from './receiver-process.ts'
import { inTable } from './table.ts'

const requests = 100
/** A minute of the provider is a second here. */
const secondsOf = (minutes: number) => minutes * 1000
const awayMinutes = 20
const callsPerMinute = 100
/** All of them, while nothing is submitted. */
const polledPerMinute = callsPerMinute

// release/late-webhooks.test.ts shows how the reconciler handles missing webhooks, without a quota.
it.skipIf(!long)(
  "no receiver for 20 minutes of the provider's time: everything is reconciled within the quota",
  { timeout: 400_000 },
  async () => {
    await inTable('no receiver runs for 20 min of provider time', 'all results fetched within the quota', async () => {
      const port = await freePort()
      const provider = await startTestProvider(
        {
          webhookAllow: [`http://127.0.0.1:${port}`],
          dispatchIntervalMs: secondsOf(0.5),
          backoffBaseMs: secondsOf(0.5),
          backoffCapMs: secondsOf(60),
          ratePerKey: 120,
          ratePerAccount: 600,
        },
        preferredServer,
      )
      onTestFinished(() => provider.stop())
      const submitting = await provider.createKey({ account: 'one', environment: 'sandbox' })
      const polling = await provider.createKey({ account: 'one', environment: 'sandbox' })
      const { url, sql } = await withTestDatabase(preferredServer)
      for (let at = 0; at < requests; at += 1) {
        const body = {
          input: { prompt: `picture ${at}`, num_images: 2 },
          webhook_url: `http://127.0.0.1:${port}/webhooks`,
        }
        const answer = await provider.call('POST', '/v1/models/aurora-image-pro', { key: submitting.api_key, body })
        if (answer.status !== 200) throw new Error(`the provider answered ${answer.status} to a submit`)
        await sql`insert into mediadock.requests (request_id, key_name, model) values (${answer.body.request_id}, 'polling', 'aurora-image-pro')`
      }
      await delay(secondsOf(awayMinutes))
      const [given] = await provider.database
        .sql`select count(*)::int as up from provider.deliveries where state = 'failed' and attempts = 6`

      const started = performance.now()
      await withReceiverProcess(url, {
        PORT: String(port),
        GENERATION_API_URL: provider.url,
        GENERATION_KEYS: JSON.stringify([
          { name: 'polling', api_key: polling.api_key, signing_secret: polling.signing_secret },
        ]),
        FETCH_RATE_PER_MINUTE: String(callsPerMinute),
        STUCK_AFTER_SECONDS: '2',
        RECONCILE_CRON: '* * * * * *',
      })
      const open = async () => (await sql`select from mediadock.results where not media_complete`).length
      await eventually(async () => (await open()) === 0, 300_000).catch(() => {})
      const minutes = (performance.now() - started) / 60_000
      const left = await open()
      const [doubled] = await sql`
      select count(*)::int as n from mediadock.results r where (select count(*) from mediadock.media m where m.request_id = r.request_id) <> 2`
      const [calls] = await sql`
      select count(*)::int as all, count(*) filter (where outcome = 'rate_limited')::int as limited,
        (select max((select count(*)::int from mediadock.polls p where p.polled_at > q.polled_at - interval '60 s' and p.polled_at <= q.polled_at and p.outcome <> 'postponed')) from mediadock.polls q) as most
      from mediadock.polls where outcome <> 'postponed'`
      return {
        rounds: 1,
        acknowledged: requests,
        lost: left,
        doubled: doubled?.['n'] ?? NaN,
        silenceMs: undefined,
        measured: `${given?.['up']} webhooks given up; all complete ${minutes.toFixed(1)} min after; at most ${calls?.['most']} calls in a minute, ${calls?.['limited']} answered 429`,
        met:
          given?.['up'] === requests &&
          left === 0 &&
          doubled?.['n'] === 0 &&
          calls?.['limited'] === 0 &&
          calls?.['most'] <= callsPerMinute &&
          minutes <= requests / polledPerMinute + 0.5,
      }
    })
  },
)
