import { afterAll, beforeAll, expect, it } from 'vitest'
import { long } from '../chaos/length.ts'
import { freePort } from '../provider/support/free-port.ts'
import { startTestProvider, type TestProvider } from '../provider/support/running-provider.ts'
import type { TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { keysOf, type TestReceiver } from '../support/receiver.ts'
import { withReceiver } from '../support/with-receiver.ts'

const requests = long ? 1000 : 60
const connections = 32

let database: TestDatabase
let provider: TestProvider
let receiver: TestReceiver
let keys: { sandbox: string; live: string }

beforeAll(async () => {
  const port = await freePort()
  provider = await startTestProvider({ webhookAllow: [`http://127.0.0.1:${port}`] })
  const live = await provider.createKey({ environment: 'live' })
  const sandbox = await provider.createKey({ account: live.account, environment: 'sandbox' })
  await provider.grant(live.account, 10_000)
  const its = await withReceiver({ providerUrl: provider.url, settings: { port, keys: keysOf(live, sandbox) } })
  ;({ database, receiver } = its)
  keys = { sandbox: sandbox.api_key, live: live.api_key }
  return its.stop
})
afterAll(() => provider.stop())

/** One of each type in turn; every tenth picture is really rendered, every hundredth sound really made. */
function shapeOf(at: number): { key: string; model: string; input: object; media: number } {
  const kinds = [
    { model: 'aurora-image', input: { prompt: `picture ${at}` }, media: 1 },
    { model: 'aurora-image-pro', input: { prompt: `pictures ${at}`, num_images: 3 }, media: 3 },
    { model: 'vela-image-to-video', input: { image_url: 'https://example.com/a.png', duration: 4 }, media: 1 },
    { model: 'lyra-audio', input: { prompt: `sound ${at}` }, media: 1 },
  ]
  const kind = kinds[at % kinds.length]!
  const rendered = (kind.model === 'aurora-image' && at % 40 === 0) || (kind.model === 'lyra-audio' && at % 400 === 3)
  return { ...kind, key: rendered ? keys.live : keys.sandbox }
}

it(
  `${requests} requests of all types, from the submit to the row: every one lands once`,
  { timeout: 480_000 },
  async () => {
    const expected = new Map<string, number>()
    let next = 0
    const submitMany = async () => {
      for (let at = next++; at < requests; at = next++) {
        const { key, model, input, media } = shapeOf(at)
        const answer = await provider.call('POST', `/v1/models/${model}`, {
          key,
          body: { input, webhook_url: receiver.webhookUrl },
        })
        expect(answer.status).toBe(200)
        expected.set(answer.body.request_id, media)
      }
    }
    await Promise.all(Array.from({ length: connections }, submitMany))
    expect(expected.size).toBe(requests)

    await eventually(async () => {
      // The webhook of a sound carries it whole; its length is only in the full result.
      await receiver.deps.background.reconcileNow()
      const [row] = await database.sql`select count(*)::int as n from mediadock.requests where confirmed_at is not null`
      return row?.['n'] === requests
    }, 400_000)

    const rows = await database.sql`select request_id, status, media_complete, sandbox, (
    select count(*)::int from mediadock.media m where m.request_id = r.request_id) as media from mediadock.results r`
    expect(rows).toHaveLength(requests)
    for (const row of rows) {
      expect(row).toMatchObject({ status: 'COMPLETED', media_complete: true })
      expect(row['media']).toBe(expected.get(row['request_id']))
    }
    expect(rows.filter((row) => row['sandbox'] === false).length).toBeGreaterThan(requests / 50)
    const [deliveries] =
      await database.sql`select count(*)::int as n, count(distinct request_id)::int as requests, count(*) filter (where flags <> '{}' or parked_reason is not null)::int as odd
    from mediadock.deliveries`
    expect(deliveries).toMatchObject({ requests, odd: 0 })
  },
)
