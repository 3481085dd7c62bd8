import { randomUUID } from 'node:crypto'
import { Webhook } from 'standardwebhooks'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { requestIdOf } from '../../../src/receiver/domain/request-id.ts'
import { verifyQuarantine } from '../../../src/receiver/on-call/verify-quarantine.ts'
import { withSources } from '../../../src/receiver/sources/keys.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { send } from '../../support/http.ts'
import { keysOf, liveKey, sandboxKey, startTestReceiver, type TestReceiver } from '../../support/receiver.ts'
import { deliver, okAudio } from '../../support/webhooks.ts'

const secretOf = (name: string) => `whsec_${Buffer.from(`a secret of ${name}, long enough`).toString('base64')}`
const sourceOf = (name: string, kind: string, more: object = {}) => ({
  name,
  kind,
  keys: [
    { name: `${name}-key`, api_key: `${name}-api-key`, ...(kind !== 'luma' && { signing_secret: secretOf(name) }) },
  ],
  ...more,
})
const sources = [
  sourceOf('pictures', 'replicate'),
  sourceOf('other-pictures', 'replicate'),
  sourceOf('veo', 'gemini'),
  sourceOf('dreams', 'luma'),
]
const keys = withSources(keysOf(liveKey, sandboxKey), JSON.stringify(sources))

let database: TestDatabase
let receiver: TestReceiver
beforeAll(async () => {
  database = await createTestDatabase()
  receiver = await startTestReceiver({ databaseUrl: database.url })
})
afterAll(async () => {
  await receiver.stop()
  await database.drop()
})
beforeEach(() => receiver.setKeys(keys))

const prediction = (id: string, more: object = {}) => ({
  id,
  status: 'succeeded',
  model: 'a/b',
  output: `https://replicate.delivery/${id}.png`,
  ...more,
})

type Post = { webhookId?: string; secret?: string; query?: string }

/** Posts a webhook as Standard Webhooks signs it. */
async function post(name: string, json: object, { webhookId = randomUUID(), secret, query = '' }: Post = {}) {
  const body = JSON.stringify(json)
  const now = new Date()
  const headers = {
    'content-type': 'application/json',
    'webhook-id': webhookId,
    'webhook-timestamp': String(Math.floor(now.getTime() / 1000)),
    'webhook-signature': new Webhook(secret ?? secretOf(name)).sign(webhookId, now, body),
  }
  const { status, text } = await send(`${receiver.webhookUrl}/${name}${query}`, 'POST', { headers, body })
  return { status, json: JSON.parse(text) }
}

const accepted = { status: 200, json: { status: 'accepted' } }

const resultOf = async (requestId: string) => {
  const [row] = await database.sql`
    select r.status, r.source_name, r.external_id, r.key_name, r.sandbox,
      (select count(*)::int from mediadock.media m where m.request_id = r.request_id) as media
    from mediadock.results r where request_id = ${requestId}`
  return row
}

describe('POST /webhooks/<name>', () => {
  it('lands the result of a job whose id is no uuid', async () => {
    const { requestId } = requestIdOf('pictures', 'job-1')
    expect(await post('pictures', prediction('job-1'))).toEqual(accepted)
    await eventually(async () =>
      expect(await resultOf(requestId)).toEqual({
        status: 'COMPLETED',
        source_name: 'pictures',
        external_id: 'job-1',
        key_name: 'pictures-key',
        sandbox: false,
        media: 1,
      }),
    )
  })

  it('the same job of two sources is two requests, and the same webhook is two deliveries', async () => {
    const webhookId = randomUUID()
    for (const name of ['pictures', 'other-pictures']) {
      expect(await post(name, prediction('job-2'), { webhookId })).toEqual(accepted)
      expect(await post(name, prediction('job-2'), { webhookId })).toMatchObject({ json: { status: 'duplicate' } })
    }
    for (const name of ['pictures', 'other-pictures'])
      await eventually(async () =>
        expect(await resultOf(requestIdOf(name, 'job-2').requestId)).toMatchObject({ source_name: name }),
      )
    const rows = await database.sql`select source_name, flags from mediadock.deliveries where webhook_id = ${webhookId}`
    expect(rows.toSorted((a, b) => (a['source_name'] < b['source_name'] ? -1 : 1))).toEqual([
      { source_name: 'other-pictures', flags: [] },
      { source_name: 'pictures', flags: [] },
    ])
  })

  it('takes no signature of another source, not even on the path of the default source', async () => {
    const refused = { status: 401, json: { error: expect.objectContaining({ code: 'invalid_signature' }) } }
    expect(await post('pictures', prediction('job-3'), { secret: secretOf('other-pictures') })).toEqual(refused)
    const audio = okAudio()
    expect((await deliver(`${receiver.webhookUrl}/pictures`, audio.body)).status).toBe(400)
    expect(await deliver(receiver.webhookUrl, audio.body, { secret: secretOf('pictures') })).toMatchObject(refused)
  })

  it('is 404 for a name that is not configured, and 405 for another method', async () => {
    expect((await post('nobody', prediction('job-4'), { secret: secretOf('nobody') })).status).toBe(404)
    expect((await send(`${receiver.webhookUrl}/pictures`, 'GET')).status).toBe(405)
    expect((await send(`${receiver.webhookUrl}/nobody`, 'GET')).status).toBe(404)
    expect((await post('pictures/more', prediction('job-4'), { secret: secretOf('pictures') })).status).toBe(404)
  })

  it('a source that SIGHUP adds and removes takes webhooks meanwhile', async () => {
    receiver.setKeys(keysOf(liveKey, sandboxKey))
    expect((await post('pictures', prediction('job-5'))).status).toBe(404)
    receiver.setKeys(keys)
    expect(await post('pictures', prediction('job-5'))).toEqual(accepted)
  })

  it('keeps what it refused under its path, and verifies it again with the secrets of that source', async () => {
    const secret = secretOf('added later')
    const webhookId = randomUUID()
    expect(await post('pictures', prediction('job-6'), { secret, webhookId })).toMatchObject({ status: 401 })
    await eventually(async () =>
      expect(
        await database.sql`select headers ->> ':path' as path from mediadock.quarantine where webhook_id = ${webhookId}`,
      ).toEqual([{ path: '/webhooks/pictures' }]),
    )
    const [pictures, ...others] = sources
    const added = { ...pictures!, keys: [...pictures!.keys, { name: 'added', api_key: 'x', signing_secret: secret }] }
    const withAdded = withSources(keysOf(liveKey, sandboxKey), JSON.stringify([added, ...others]))
    receiver.setKeys(withAdded)
    await verifyQuarantine({ ...receiver.deps, keys: () => withAdded })
    await eventually(async () =>
      expect(await resultOf(requestIdOf('pictures', 'job-6').requestId)).toMatchObject({ key_name: 'added' }),
    )
  })

  it('whose kind does not sign any more admits nothing from the quarantine', async () => {
    const webhookId = randomUUID()
    const forged = { secret: secretOf('a stranger'), webhookId }
    expect(await post('pictures', prediction('job-12'), forged)).toMatchObject({ status: 401 })
    const quarantined = () => database.sql`select from mediadock.quarantine where webhook_id = ${webhookId}`
    await eventually(async () => expect(await quarantined()).toHaveLength(1))
    const [, ...others] = sources
    const unsigned = withSources(keysOf(liveKey, sandboxKey), JSON.stringify([sourceOf('pictures', 'luma'), ...others]))
    await verifyQuarantine({ ...receiver.deps, keys: () => unsigned })
    expect(await quarantined()).toHaveLength(1)
  })

  it('the log of arrivals names the source', async () => {
    const webhookId = randomUUID()
    await post('pictures', prediction('job-7'), { webhookId })
    await eventually(async () =>
      expect(
        await database.sql`select outcome, source_name from mediadock.arrivals where webhook_id = ${webhookId}`,
      ).toEqual([{ outcome: 'accepted', source_name: 'pictures' }]),
    )
  })
})

describe('a hint', () => {
  const pollOf = async (requestId: string) => {
    const [row] = await database.sql`
      select status, next_poll_at <= now() as due, doubt_poll_at is not null as extra, external_id, key_name
      from mediadock.requests where request_id = ${requestId}`
    return row
  }
  const event = (id: string) => ({ type: 'video.generated', data: { id } })

  it('of a signed source tracks the request, and its poll is due', async () => {
    const job = 'models/veo/operations/one'
    const { requestId } = requestIdOf('veo', job)
    const webhookId = randomUUID()
    expect(await post('veo', event(job), { webhookId })).toEqual(accepted)
    await eventually(async () =>
      expect(await pollOf(requestId)).toEqual({
        status: 'IN_QUEUE',
        due: true,
        extra: false,
        external_id: job,
        key_name: 'veo-key',
      }),
    )
    const [delivery] = await database.sql`
      select d.parked_reason, d.request_id, (select array_agg(outcome) from mediadock.attempts where delivery_id = d.id) as outcomes,
        exists (select from mediadock.inbox where delivery_id = d.id) as pending
      from mediadock.deliveries d where webhook_id = ${webhookId}`
    expect(delivery).toEqual({ parked_reason: null, request_id: requestId, outcomes: ['hint'], pending: false })
  })

  it('for a request of another source is parked, and no poll is due', async () => {
    const job = randomUUID()
    await database.sql`insert into mediadock.requests (request_id) values (${job})`
    const webhookId = randomUUID()
    expect(await post('veo', event(job), { webhookId })).toEqual(accepted)
    await eventually(async () =>
      expect(
        await database.sql`select parked_reason, flags from mediadock.deliveries where webhook_id = ${webhookId}`,
      ).toEqual([{ parked_reason: 'source_mismatch', flags: ['source_mismatch'] }]),
    )
    expect(await pollOf(job)).toMatchObject({ due: null, extra: false })
  })

  it('of a job that runs makes no poll due', async () => {
    expect(await post('pictures', prediction('job-8', { status: 'processing', output: null }))).toEqual(accepted)
    await eventually(async () =>
      expect(await pollOf(requestIdOf('pictures', 'job-8').requestId)).toMatchObject({ status: 'IN_QUEUE', due: null }),
    )
  })

  it('without a signature is kept nowhere but in the log, and gives a tracked request one extra poll', async () => {
    const tracked = randomUUID()
    const unknown = randomUUID()
    const ofFirst = randomUUID()
    const hint = { outcome: 'hint', reason: 'unsigned', key_name: null }
    await database.sql`insert into mediadock.requests (request_id, source_name)
      values (${tracked}, 'dreams'), (${ofFirst}, null)`
    for (const id of [tracked, unknown, ofFirst]) {
      const answer = await send(`${receiver.webhookUrl}/dreams`, 'POST', {
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ id, state: 'completed', assets: { video: 'https://evil.test/x.mp4' } }),
      })
      expect({ status: answer.status, json: JSON.parse(answer.text) }).toEqual({
        status: 200,
        json: { status: 'hint' },
      })
    }
    await eventually(async () =>
      expect(
        await database.sql`select outcome, reason, key_name from mediadock.arrivals where source_name = 'dreams'`,
      ).toEqual([hint, hint, hint]),
    )
    await eventually(async () => expect(await pollOf(tracked)).toMatchObject({ status: 'IN_QUEUE', extra: true }))
    expect(await pollOf(unknown)).toBeUndefined()
    expect(await pollOf(ofFirst)).toMatchObject({ extra: false })
    expect(await database.sql`select from mediadock.deliveries where source_name = 'dreams'`).toEqual([])
  })
})

describe('readers', () => {
  const read = async (path: string) => {
    const { status, text } = await send(`${receiver.internalUrl}api/${path}`, 'GET')
    return { status, json: JSON.parse(text) }
  }
  const namesIn = ({ json }: { json: { data: { source_name?: string; result?: { source_name: string } }[] } }) => [
    ...new Set(json.data.map(({ source_name: name, result }) => name ?? result?.source_name)),
  ]

  it('choose results, deliveries, arrivals and changes by source', async () => {
    await post('pictures', prediction('job-9'))
    await post('other-pictures', prediction('job-9'))
    await deliver(receiver.webhookUrl, okAudio().body)
    await eventually(async () => {
      for (const name of ['pictures', 'other-pictures', 'generation-queue'])
        for (const list of ['requests', 'deliveries', 'arrivals', 'feed'])
          expect(namesIn(await read(`${list}?source_name=${name}`))).toEqual([name])
      return true
    })
    for (const list of ['requests', 'deliveries', 'arrivals', 'feed'])
      expect(await read(`${list}?source_name=nobody`)).toMatchObject({ status: 200, json: { data: [] } })
  })

  it('find a request by the id of its source', async () => {
    await post('pictures', prediction('job-10'))
    const { requestId } = requestIdOf('pictures', 'job-10')
    await eventually(async () => expect(await resultOf(requestId)).toMatchObject({ status: 'COMPLETED' }))
    expect(await read('requests?external_id=job-10')).toMatchObject({ json: { data: [{ request_id: requestId }] } })
    expect(await read('search?q=job-10')).toMatchObject({ json: { requests: [{ request_id: requestId }] } })
    expect(await read('search?q=job-1')).not.toMatchObject({ json: { requests: [{ request_id: requestId }] } })
    // A whole id with the form of a uuid's beginning is found once.
    await post('pictures', prediction('abcd1234'))
    await eventually(async () => (await read('search?q=abcd1234')).json.requests.length > 0)
    expect(await read('search?q=abcd1234')).toMatchObject({
      json: { requests: [{ request_id: requestIdOf('pictures', 'abcd1234').requestId }] },
    })
  })

  it('see the source in the console', async () => {
    const { requestId } = requestIdOf('pictures', 'job-10')
    const page = await send(`${receiver.internalUrl}requests/${requestId}`, 'GET')
    expect(page.text).toContain('job-10')
    expect((await send(`${receiver.internalUrl}deliveries`, 'GET')).text).toContain('name="source_name"')
  })

  it('see in every list of the console what belongs to another source, and nothing about the default source', async () => {
    await post('pictures', prediction('job-11'))
    await post('pictures', prediction('job-11'), { secret: secretOf('a stranger') })
    await post('pictures', { id: 'job-12', status: 'unheard of' })
    await deliver(receiver.webhookUrl, okAudio().body)
    await deliver(receiver.webhookUrl, okAudio().body, { secret: 'of a stranger' })
    const { requestId } = requestIdOf('pictures', 'job-11')
    const named = '<div class="soft" title="The source in SOURCES_FILE"><bdi>pictures</bdi></div>'
    const rowsOf = async (path: string) =>
      (await send(`${receiver.internalUrl}${path}`, 'GET')).text
        .split('<tr ')
        .filter((row) => row.includes('data-row='))
    for (const [path, mine] of [
      ['requests', 'source_name=pictures'],
      ['deliveries', 'source_name=pictures'],
      ['deliveries?view=arrivals', 'source_name=pictures'],
      [`search?q=${requestId.slice(0, 8)}`, ''],
      ['deliveries?state=parked', 'source_name=pictures'],
    ] as const)
      await eventually(async () => {
        const rows = await rowsOf(`${path}${path.includes('?') ? '&' : '?'}${mine}`)
        expect(rows, path).not.toEqual([])
        for (const row of rows) expect(row, path).toContain(named)
        return true
      })
    for (const path of ['requests', 'deliveries', 'deliveries?view=arrivals']) {
      const rows = await rowsOf(`${path}${path.includes('?') ? '&' : '?'}source_name=generation-queue`)
      expect(rows, path).not.toEqual([])
      for (const row of rows) expect(row, path).not.toContain('SOURCES_FILE')
    }
    await eventually(async () => {
      const refused = (await rowsOf('parked?view=quarantine')).filter((row) => row.includes('SOURCES_FILE'))
      expect(refused.join('')).toContain(named)
      return true
    })
    const ofKey = (await rowsOf('keys')).filter((row) => row.includes('>pictures-key<'))
    expect(ofKey.join('')).toContain(named)
    // It signs nothing, so it has no secret of which to compare a fingerprint.
    const { json } = await read('keys')
    expect(json.data).toContainEqual(expect.objectContaining({ name: 'pictures-key', source_name: 'pictures' }))
    expect(json.data).toContainEqual(expect.objectContaining({ name: 'dreams-key', fingerprint: null }))
    expect(json.data).toContainEqual(expect.objectContaining({ name: 'live', source_name: 'generation-queue' }))
  })
})
