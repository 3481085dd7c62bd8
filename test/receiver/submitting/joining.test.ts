import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { Webhook } from 'standardwebhooks'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { requestIdOf } from '../../../src/receiver/domain/request-id.ts'
import { withSources } from '../../../src/receiver/sources/keys.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { send } from '../../support/http.ts'
import { json } from '../../support/provider-stand.ts'
import { keysOf, liveKey, type TestReceiver } from '../../support/receiver.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let database: TestDatabase
let receiver: TestReceiver
let server: http.Server
let posts = 0
let respond: (res: http.ServerResponse, webhook: string) => void

const secretOf = (name: string) => `whsec_${Buffer.from(`a secret of ${name}, long enough`).toString('base64')}`

beforeAll(async () => {
  server = http.createServer((req, res) => {
    let text = ''
    req.on('data', (chunk) => (text += chunk))
    req.on('end', () => {
      posts += 1
      respond(res, JSON.parse(text).webhook)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const its = await withReceiver({ settings: { webhookPublicUrl: 'https://hooks.test/webhooks' } })
  ;({ database, receiver } = its)
  const sources = ['pictures', 'others'].map((name) => ({
    name,
    kind: 'replicate',
    api_url: `http://127.0.0.1:${port}`,
    keys: [{ name: `${name}-key`, api_key: 'r8_key', signing_secret: secretOf(name) }],
  }))
  receiver.setKeys(withSources(keysOf(liveKey), JSON.stringify(sources)))
  return its.stop
})
beforeEach(async () => {
  posts = 0
  await database.sql`delete from mediadock.call_budgets`
})
afterAll(() => {
  server.closeAllConnections()
  server.close()
})

/** Posts the webhook of a job that has succeeded to the path that was given with its submit. */
async function webhook(name: string, job: string, query: string) {
  const body = JSON.stringify({ id: job, status: 'succeeded', output: `https://replicate.delivery/${job}.png` })
  const now = new Date()
  const webhookId = randomUUID()
  const headers = {
    'content-type': 'application/json',
    'webhook-id': webhookId,
    'webhook-timestamp': String(Math.floor(now.getTime() / 1000)),
    'webhook-signature': new Webhook(secretOf(name)).sign(webhookId, now, body),
  }
  return send(`${receiver.webhookUrl}/${name}${query}`, 'POST', { headers, body })
}

const submit = (more: object = {}) =>
  receiver.deps.submitter.submit({
    idempotency_key: randomUUID(),
    model: 'owner/name',
    input: { prompt: 'dog' },
    key_name: 'pictures-key',
    metadata: { order: 7 },
    ...more,
  })
const stateOf = async (key: string) => (await receiver.deps.submitter.find(key)) ?? expect.fail()
const resultOf = async (requestId: string) => {
  const [row] = await database.sql`
    select status, source_name, external_id, model, metadata, idempotency_key, key_name
    from mediadock.results where request_id = ${requestId}`
  return row
}
const joined = (job: string, key: string) => ({
  status: 'COMPLETED',
  source_name: 'pictures',
  external_id: job,
  model: 'owner/name',
  metadata: { order: 7 },
  idempotency_key: key,
  key_name: 'pictures-key',
})

it('tracks a job whose id is no uuid', async () => {
  respond = (res) => json(res, 201, { id: 'job-1', status: 'starting' })
  const { requestId } = requestIdOf('pictures', 'job-1')
  const answer = await submit()
  expect(answer).toMatchObject({ status: 202, body: { state: 'submitted', request_id: requestId } })
  expect(await resultOf(requestId)).toMatchObject({ status: 'IN_QUEUE', external_id: 'job-1', source_name: 'pictures' })
})

describe('a submit whose answer is lost', () => {
  it('is ended by the webhook whose URL names it, and is not sent again', async () => {
    let query = ''
    respond = (res, url) => {
      query = new URL(url).search
      json(res, 500, {})
    }
    const { idempotency_key: key } = Object((await submit()).body)
    expect(await stateOf(key)).toMatchObject({ state: 'pending', request_id: null })
    expect((await webhook('pictures', 'job-2', query)).status).toBe(200)
    const { requestId } = requestIdOf('pictures', 'job-2')
    await eventually(async () => expect(await resultOf(requestId)).toEqual(joined('job-2', key)))
    expect(await stateOf(key)).toMatchObject({ state: 'submitted', request_id: requestId, last_error: null })
    expect(posts).toBe(1)
  })

  it('is ended later while another transaction locks it, and other webhooks land meanwhile', async () => {
    respond = (res) => json(res, 500, {})
    const { idempotency_key: key } = Object((await submit()).body)
    const { requestId } = requestIdOf('pictures', 'job-locked')
    const other = requestIdOf('pictures', 'job-behind').requestId
    await database.sql.begin(async (tx) => {
      await tx`select from mediadock.generations where idempotency_key = ${key} for update`
      expect((await webhook('pictures', 'job-locked', `?generation=${key}`)).status).toBe(200)
      // Its claim has ended, although the lock is still held.
      await eventually(async () => {
        const [row] = await database.sql`
          select trouble from mediadock.inbox join mediadock.deliveries d on d.id = delivery_id
          where request_id = ${requestId}`
        return expect(row).toMatchObject({ trouble: 'a lock of another transaction' })
      })
      expect((await webhook('pictures', 'job-behind', `?generation=${randomUUID()}`)).status).toBe(200)
      await eventually(async () => expect(await resultOf(other)).toMatchObject({ status: 'COMPLETED' }))
      expect(await stateOf(key)).toMatchObject({ state: 'pending' })
    })
    await eventually(async () => expect(await resultOf(requestId)).toEqual(joined('job-locked', key)), 20_000)
    expect(await stateOf(key)).toMatchObject({ state: 'submitted', request_id: requestId })
  })

  it('is not ended by a webhook of another source, which lands for itself', async () => {
    respond = (res) => json(res, 500, {})
    const { idempotency_key: key } = Object((await submit()).body)
    expect((await webhook('others', 'job-3', `?generation=${key}`)).status).toBe(200)
    const { requestId } = requestIdOf('others', 'job-3')
    await eventually(async () => expect(await resultOf(requestId)).toMatchObject({ status: 'COMPLETED' }))
    expect(await resultOf(requestId)).toMatchObject({ source_name: 'others', idempotency_key: null, metadata: null })
    expect(await stateOf(key)).toMatchObject({ state: 'pending', request_id: null })
  })
})

it('a webhook that comes before the answer to its submit is joined with it', async () => {
  respond = (res, url) => {
    webhook('pictures', 'job-4', new URL(url).search).then(
      () => setTimeout(() => json(res, 201, { id: 'job-4', status: 'succeeded' }), 300),
      () => expect.fail(),
    )
  }
  const { idempotency_key: key } = Object((await submit()).body)
  const { requestId } = requestIdOf('pictures', 'job-4')
  await eventually(async () => expect(await resultOf(requestId)).toEqual(joined('job-4', key)))
  expect(await stateOf(key)).toMatchObject({ state: 'submitted', request_id: requestId })
  expect(posts).toBe(1)
})

it('a webhook whose URL names no submit, or an unknown one, lands all the same', async () => {
  for (const [job, query] of [
    ['job-5', `?generation=${randomUUID()}`],
    ['job-6', '?generation=1'],
    ['job-7', '?x=y'],
  ] as const) {
    expect((await webhook('pictures', job, query)).status).toBe(200)
    await eventually(async () =>
      expect(await resultOf(requestIdOf('pictures', job).requestId)).toMatchObject({ status: 'COMPLETED' }),
    )
  }
})

it('a replay of a webhook alone ends the submit that its URL names, a dry run does not', async () => {
  const key = randomUUID()
  expect((await webhook('pictures', 'job-of-a-replay', `?generation=${key}`)).status).toBe(200)
  const { requestId } = requestIdOf('pictures', 'job-of-a-replay')
  await eventually(async () => expect(await resultOf(requestId)).toMatchObject({ status: 'COMPLETED' }))
  respond = (res) => json(res, 500, {})
  await submit({ idempotency_key: key })
  const [delivery] = await database.sql`select id from mediadock.deliveries where request_id = ${requestId}`
  const replay = (dryRun: boolean) =>
    send(`${receiver.internalUrl}api/deliveries/${delivery?.['id']}/replay`, 'POST', {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ dry_run: dryRun }),
    })
  expect((await replay(true)).status).toBe(200)
  expect(await stateOf(key)).toMatchObject({ state: 'pending', request_id: null })
  expect((await replay(false)).status).toBe(200)
  expect(await stateOf(key)).toMatchObject({ state: 'submitted', request_id: requestId })
})

describe('POST /api/requests', () => {
  const track = async (body: object) => {
    const { status, text } = await send(`${receiver.internalUrl}api/requests`, 'POST', {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    return { status, json: JSON.parse(text) }
  }

  it('tracks a job by the id that its source gave it', async () => {
    const body = { external_id: 'job-8', key_name: 'pictures-key', metadata: { order: 8 } }
    const { requestId } = requestIdOf('pictures', 'job-8')
    const shown = { request_id: requestId, external_id: 'job-8', source_name: 'pictures', metadata: { order: 8 } }
    expect(await track(body)).toMatchObject({ status: 201, json: shown })
    expect(await track({ ...body, request_id: requestId })).toMatchObject({ status: 200, json: shown })
    await webhook('pictures', 'job-8', '')
    await eventually(async () =>
      expect(await resultOf(requestId)).toMatchObject({ status: 'COMPLETED', metadata: { order: 8 } }),
    )
  })

  it('is 409 with a key of another source than the request', async () => {
    const request_id = randomUUID()
    expect(await track({ request_id })).toMatchObject({ status: 201 })
    const conflict = { status: 409, json: { error: { code: 'source_mismatch' } } }
    expect(await track({ request_id, key_name: 'pictures-key' })).toMatchObject(conflict)
    const ofPictures = randomUUID()
    expect(await track({ request_id: ofPictures, key_name: 'pictures-key' })).toMatchObject({ status: 201 })
    expect(await track({ request_id: ofPictures, key_name: 'others-key' })).toMatchObject(conflict)
    expect(await track({ request_id: ofPictures })).toMatchObject(conflict)
  })

  it.each([
    ['no id', {}],
    ['an external id of the default source', { external_id: 'job', key_name: 'live' }],
    ['two ids that differ', { request_id: randomUUID(), external_id: 'job', key_name: 'pictures-key' }],
    ['an external id with white space', { external_id: 'a job', key_name: 'pictures-key' }],
  ])('is 400 with %s', async (_, body) => {
    expect(await track(body)).toMatchObject({ status: 400, json: { error: { code: 'invalid_body' } } })
  })
})
