import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { json } from '../../support/provider-stand.ts'
import { liveKey, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

type Posted = { path: string; key: string; authorization: string; body: { input: object; webhook_url: string } }
type Respond = (posted: Posted, res: http.ServerResponse) => void

let database: TestDatabase
let receiver: TestReceiver
let server: http.Server
let posted: Posted[] = []
let respond: Respond

/** What the provider makes of an Idempotency-Key: one request each, and so one charge. */
const known = new Map<string, string>()
const accept: Respond = ({ key }, res) => {
  const id = known.get(key) ?? randomUUID()
  known.set(key, id)
  const base = `http://127.0.0.1/v1/requests/${id}`
  json(res, 200, {
    request_id: id,
    status: 'IN_QUEUE',
    queue_position: 0,
    status_url: `${base}/status`,
    response_url: base,
    cancel_url: `${base}/cancel`,
    cost: 4,
  })
}

beforeAll(async () => {
  server = http.createServer((req, res) => {
    let text = ''
    req.on('data', (chunk) => (text += chunk))
    req.on('end', () => {
      const one = {
        path: req.url ?? '',
        key: String(req.headers['idempotency-key']),
        authorization: req.headers.authorization ?? '',
        body: JSON.parse(text || '{}'),
      }
      posted.push(one)
      respond(one, res)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const its = await withReceiver({ providerUrl: `http://127.0.0.1:${port}`, settings: { webhookPublicUrl: 'https://hooks.test/webhooks' } })
  ;({ database, receiver } = its)
  respond = accept
  return its.stop
})
afterEach(async () => {
  // A 429 rests the key for a while, which is not what the next test is about.
  await database.sql`delete from mediadock.call_budgets`
  posted = []
  respond = accept
  receiver.setNow(undefined)
})
afterAll(async () => {
  server.closeAllConnections()
  server.close()
})

const body = { model: 'aurora-image', input: { prompt: 'a lighthouse' } }
const submit = (more: object = {}) => receiver.deps.submitter.submit({ ...body, ...more })

async function pass(minutes: number): Promise<void> {
  receiver.setNow(new Date(Date.now() + minutes * 60_000))
  await receiver.deps.submitter.runOnce()
}

describe('submitting', () => {
  it('posts with the Idempotency-Key and the webhook URL, and tracks the request', async () => {
    const answer = await submit({ metadata: { order: 9 } })
    expect(answer).toMatchObject({ status: 202, body: { state: 'submitted', status: 'IN_QUEUE', cost: 4, metadata: { order: 9 } } })
    const { request_id: id, idempotency_key: key } = Object(answer.body)
    expect(posted).toEqual([
      {
        path: '/v1/models/aurora-image',
        key,
        authorization: `Bearer ${liveKey.api_key}`,
        body: { input: body.input, webhook_url: 'https://hooks.test/webhooks' },
      },
    ])
    const [row] = await database.sql`select * from mediadock.results where request_id = ${id}`
    expect(row).toMatchObject({ status: 'IN_QUEUE', model: 'aurora-image', key_name: 'live', sandbox: false, metadata: { order: 9 } })
  })

  it.each([
    [{ prompt: 'x', num_images: 4 }, 4],
    [{ prompt: 'x', n: 1 }, 1],
    [{ prompt: 'x' }, null],
    [{ prompt: 'x', num_images: '4' }, null],
    [{ prompt: 'x', num_images: 1e9 }, null],
  ])('keeps how many pictures %j wants: %s, whether the webhook was faster or not', async (input, wanted) => {
    const wantedOf = async (id: string) =>
      (await database.sql`select items_wanted from mediadock.requests where request_id = ${id}`)[0]?.['items_wanted']
    expect(await wantedOf(Object((await submit({ input })).body).request_id)).toBe(wanted)
    let faster = ''
    respond = async (_one, res) => {
      faster = randomUUID()
      await database.sql`insert into mediadock.requests (request_id) values (${faster})`
      const link = `https://api.test/v1/requests/${faster}`
      json(res, 200, {
        request_id: faster,
        status: 'IN_QUEUE',
        queue_position: 0,
        status_url: link,
        response_url: link,
        cancel_url: link,
        cost: 4,
      })
    }
    await submit({ input })
    expect(await wantedOf(faster)).toBe(wanted)
  })

  it('sent twice with one key calls once and answers the same request', async () => {
    const idempotency_key = randomUUID()
    const [first, second] = [await submit({ idempotency_key }), await submit({ idempotency_key })]
    expect(Object(second.body).request_id).toBe(Object(first.body).request_id)
    expect(posted).toHaveLength(1)
    await expect(submit({ idempotency_key, input: { prompt: 'another' } })).rejects.toMatchObject({
      status: 409,
      code: 'idempotency_key_reuse',
    })
  })

  it('passes a 4xx of the provider on, and may be sent again with the same key', async () => {
    const envelope = { error: { type: 'billing_error', code: 'insufficient_credits', message: 'no credits' } }
    respond = (_one, res) => json(res, 402, envelope)
    const idempotency_key = randomUUID()
    expect(await submit({ idempotency_key })).toEqual({ status: 402, body: envelope })
    respond = accept
    expect(await submit({ idempotency_key })).toMatchObject({ status: 202, body: { state: 'submitted' } })
  })

  it.each<[string, Respond]>([
    ['500', (_one, res) => json(res, 500, {})],
    ['429', (_one, res) => json(res, 429, { error: { type: 'x', code: 'rate_limit_exceeded', message: '' } }, { 'retry-after': '2' })],
    ['409 request_in_progress', (_one, res) => json(res, 409, { error: { type: 'x', code: 'request_in_progress', message: '' } })],
    ['a cut connection', (_one, res) => res.socket?.destroy()],
    ['nonsense', (_one, res) => res.writeHead(200).end('<html>')],
  ])('answers 202 without a request_id on %s, and tries again with the same key', async (_what, answer) => {
    respond = answer
    const pending = await submit()
    expect(pending).toMatchObject({ status: 202, body: { request_id: null, state: 'pending' } })
    const { idempotency_key: key } = Object(pending.body)
    respond = accept
    await pass(10)
    const found = await receiver.deps.submitter.find(key)
    expect(found).toMatchObject({ state: 'submitted', request_id: known.get(key) })
    expect(new Set(posted.map((one) => one.key))).toEqual(new Set([key]))
  })

  it('a provider that took it and whose answer was lost is called again, and charges once', async () => {
    respond = (one, res) => {
      accept(one, Object.assign(Object.create(res), { writeHead: () => ({ end: () => res.socket?.destroy() }) }))
    }
    const before = known.size
    const { idempotency_key: key } = Object((await submit()).body)
    respond = accept
    await pass(10)
    expect(await receiver.deps.submitter.find(key)).toMatchObject({ state: 'submitted', request_id: known.get(key) })
    expect(known.size).toBe(before + 1)
  })

  it('an intent that a crash left behind is taken up when its lease ends', async () => {
    const key = randomUUID()
    await database.sql`insert into mediadock.generations (idempotency_key, model, input, key_name, created_at, next_attempt_at, attempts)
      values (${key}, 'aurora-image', '{}', 'live', now(), now() + interval '30 seconds', 1)`
    await pass(1)
    expect(await receiver.deps.submitter.find(key)).toMatchObject({ state: 'submitted' })
  })

  it('is given up before the provider forgets the key', async () => {
    respond = (_one, res) => json(res, 500, {})
    const { idempotency_key: key } = Object((await submit()).body)
    posted = []
    respond = accept
    await pass(24 * 60)
    expect(await receiver.deps.submitter.find(key)).toMatchObject({ state: 'expired', request_id: null })
    expect(posted).toEqual([])
  })

  it('refused and sent again a day later it has a day of its own', async () => {
    respond = (_one, res) => json(res, 402, { error: { type: 'billing_error', code: 'insufficient_credits', message: '' } })
    const idempotency_key = randomUUID()
    await submit({ idempotency_key })
    receiver.setNow(new Date(Date.now() + 24 * 3_600_000))
    respond = (_one, res) => json(res, 429, { error: { type: 'x', code: 'rate_limit_exceeded', message: '' } }, { 'retry-after': '999999' })
    expect(await submit({ idempotency_key })).toMatchObject({ status: 202, body: { state: 'pending' } })
    respond = accept
    // However long the provider says: it would not be called again before the key is forgotten.
    await pass(26 * 60)
    expect(await receiver.deps.submitter.find(idempotency_key)).toMatchObject({ state: 'submitted' })
  })

  it('in doubt is said again as it was, whatever the webhook URL is by now', async () => {
    respond = (_one, res) => res.socket?.destroy()
    const { idempotency_key: key } = Object((await submit()).body)
    await database.sql`update mediadock.generations set webhook_url = 'https://before.test/webhooks' where idempotency_key = ${key}`
    respond = accept
    await pass(10)
    expect(posted.map((one) => Object(one.body).webhook_url)).toEqual(['https://hooks.test/webhooks', 'https://before.test/webhooks'])
  })

  it('in doubt, then refused, and sent again a day later is given up instead of being called once more', async () => {
    respond = (_one, res) => res.socket?.destroy()
    const idempotency_key = randomUUID()
    await submit({ idempotency_key })
    respond = (_one, res) => json(res, 401, { error: { type: 'authentication_error', code: 'invalid_api_key', message: '' } })
    await pass(10)
    expect(await receiver.deps.submitter.find(idempotency_key)).toMatchObject({ state: 'refused' })
    posted = []
    respond = accept
    receiver.setNow(new Date(Date.now() + 24 * 3_600_000))
    expect(await submit({ idempotency_key })).toMatchObject({ status: 202, body: { state: 'expired' } })
    expect(posted).toEqual([])
  })

  it('refused again and again without a doubt it may be sent again for ever, to the webhook URL of now', async () => {
    const envelope = { error: { type: 'billing_error', code: 'insufficient_credits', message: '' } }
    respond = (_one, res) => json(res, 402, envelope)
    const idempotency_key = randomUUID()
    for (let day = 0; day < 4; day += 1) {
      receiver.setNow(new Date(Date.now() + day * 24 * 3_600_000))
      await database.sql`update mediadock.generations set webhook_url = 'https://wrong.test/' where idempotency_key = ${idempotency_key}`
      expect(await submit({ idempotency_key })).toEqual({ status: 402, body: envelope })
    }
    expect(new Set(posted.map((one) => Object(one.body).webhook_url))).toEqual(new Set(['https://hooks.test/webhooks']))
  })

  it('a webhook that is faster than the answer is joined, metadata included', async () => {
    respond = (one, res) => {
      const id = randomUUID()
      known.set(one.key, id)
      void deliver(receiver.webhookUrl, failed(id).body)
        .then(() =>
          eventually(
            async () => (await database.sql`select from mediadock.results where request_id = ${id} and status = 'FAILED'`).length > 0,
          ),
        )
        .then(() => accept(one, res))
    }
    const answer = await submit({ metadata: { order: 11 } })
    expect(answer).toMatchObject({ status: 202, body: { state: 'submitted', status: 'FAILED' } })
    const [row] = await database.sql`select status, metadata from mediadock.results where request_id = ${Object(answer.body).request_id}`
    expect(row).toEqual({ status: 'FAILED', metadata: { order: 11 } })
  })

  it.each([
    ['an unknown key_name', { key_name: 'nobody' }, 'unknown_key'],
    ['a NUL in the input', { input: { prompt: 'a\0b' } }, 'not_storable'],
    ['a lone surrogate in a key', { input: { '\ud800': 1 } }, 'not_storable'],
  ])('%s is refused with 422 and no call', async (_what, more, code) => {
    await expect(submit(more)).rejects.toMatchObject({ status: 422, code })
    expect(posted).toEqual([])
  })
})
