import { afterAll, beforeAll, expect, test } from 'vitest'
import { withSources } from '../../../src/receiver/sources/keys.ts'
import { freePort } from '../../provider/support/free-port.ts'
import { startTestProvider, type TestProvider } from '../../provider/support/running-provider.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { keysOf, liveKey, type TestReceiver } from '../../support/receiver.ts'
import { deliver, okAudio } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let provider: TestProvider
let receiver: TestReceiver
let database: TestDatabase

beforeAll(async () => {
  const port = await freePort()
  const origin = `http://127.0.0.1:${port}`
  provider = await startTestProvider({ webhookAllow: [origin] })
  const its = await withReceiver({ settings: { port, webhookPublicUrl: `${origin}/webhooks` } })
  ;({ receiver, database } = its)
  const key = await provider.createKey()
  const { api_key, signing_secret, account } = key
  const api_url = (kind: string) => `${provider.url}/${kind}`
  const key_set_url = `${provider.url}/fal/.well-known/jwks.json`
  const sources = [
    {
      name: 'pictures',
      kind: 'replicate',
      api_url: api_url('replicate'),
      keys: [{ name: 'p', api_key, signing_secret }],
    },
    { name: 'fal', kind: 'fal', api_url: api_url('fal'), account, key_set_url, keys: [{ name: 'f', api_key }] },
  ]
  receiver.setKeys(withSources(keysOf(liveKey), JSON.stringify(sources)))
  await eventually(async () => receiver.deps.keys().sources.get('fal')?.secrets.length === 1)
  return its.stop
})
afterAll(() => provider.stop())

test.each([
  ['p', 'pictures'],
  ['f', 'fal'],
])('a submit with the key %s lands from the webhook of %s', async (key_name, source_name) => {
  const submitted = await receiver.deps.submitter.submit({
    model: 'local/aurora-image-preview',
    input: { prompt: 'a lighthouse', num_images: 2 },
    key_name,
  })
  expect(submitted).toMatchObject({ status: 202, body: { state: 'submitted' } })
  const { request_id: id } = Object(submitted.body)
  const row = await eventually(async () => {
    const [found] = await database.sql`
      select source_name, status, media_complete, r.source,
        (select count(*)::int from mediadock.media m where m.request_id = r.request_id) as items
      from mediadock.results r where request_id = ${id}`
    return found?.['status'] === 'COMPLETED' && found
  })
  expect(row).toMatchObject({ source_name, media_complete: true, items: 2 })
  const deliveries = await database.sql`
    select source_name, key_name, parked_reason from mediadock.deliveries where request_id = ${id}`
  expect(deliveries).toEqual([{ source_name, key_name, parked_reason: null }])
})

test('metrics name a further source, and the series of the first one have no such label', async () => {
  const scraped = async () => (await fetch(new URL('/metrics', receiver.internalUrl))).text()
  const { body } = okAudio()
  expect((await deliver(receiver.webhookUrl, body)).status).toBe(200)
  await eventually(async () => {
    const text = await scraped()
    for (const label of ['', ',source_name="pictures"', ',source_name="fal"']) {
      expect(text).toMatch(new RegExp(`^mediadock_arrivals_total{outcome="accepted",reason=""${label}} [1-9]`, 'm'))
      expect(text).toMatch(
        new RegExp(`^mediadock_landed_total{status="COMPLETED",source="webhook"${label}} [1-9]`, 'm'),
      )
    }
    for (const label of ['pictures', 'fal'])
      expect(text).toMatch(
        new RegExp(
          `^mediadock_provider_calls_total{operation="submit",outcome="submitted",source_name="${label}"} [1-9]`,
          'm',
        ),
      )
    return true
  })
})
