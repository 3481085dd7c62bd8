import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { withSources } from '../../../src/receiver/sources/keys.ts'
import { freePort } from '../../provider/support/free-port.ts'
import { startTestProvider, type TestProvider } from '../../provider/support/running-provider.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { keysOf, liveKey, type TestReceiver } from '../../support/receiver.ts'
import { deliver, okAudio } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call } from '../api/calls.ts'

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
    idempotency_key: randomUUID(),
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

test('metrics name another source, and the series of the default source have no such label', async () => {
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

test('the signature of a refused webhook is shown nowhere, even when its source is removed', async () => {
  const signature = 'v1,bm90IGEgc2VjcmV0IHNpZ25hdHVyZSBhdCBhbGwhISE='
  const falSignature = '5e'.repeat(64)
  const headers = {
    'content-type': 'application/json',
    'webhook-id': 'msg_refused',
    'webhook-timestamp': String(Math.floor(Date.now() / 1000)),
    'webhook-signature': signature,
    'x-fal-webhook-signature': falSignature,
  }
  const sent = await fetch(`${receiver.webhookUrl}/pictures`, { method: 'POST', headers, body: '{"id":"refused"}' })
  expect(sent.status).toBe(401)
  const item = await eventually(async () => {
    const { json } = await call(receiver, 'GET /api/quarantine?webhook_id=msg_refused')
    return json.data[0]
  })
  const [kept] = await database.sql`select headers from mediadock.quarantine where id = ${item.id}`
  expect(JSON.stringify(kept)).toContain(signature)
  const shown = async () => {
    const { json } = await call(receiver, 'GET /api/quarantine?webhook_id=msg_refused')
    expect(json.data[0].headers).toMatchObject({ 'webhook-id': 'msg_refused' })
    const page = await (await fetch(new URL(`/parked/quarantine/${item.id}`, receiver.internalUrl))).text()
    expect(page).toContain('webhook-timestamp')
    return JSON.stringify(json) + page
  }
  for (const keys of [receiver.deps.keys(), keysOf(liveKey)]) {
    receiver.setKeys(keys)
    const text = await shown()
    expect(text).not.toContain(signature)
    expect(text).not.toContain(falSignature)
  }
})
