import { randomUUID } from 'node:crypto'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult, json, type ProviderStand } from '../../support/provider-stand.ts'
import { liveKey, sandboxKey, startTestReceiver, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, okAudio, okImage, okVideo } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let database: TestDatabase
let stand: ProviderStand
let receiver: TestReceiver

beforeAll(async () => {
  const its = await withReceiver({ stand: true, settings: { mediaHosts: ['media.test'] } })
  ;({ database, receiver, stand } = its)
  return its.stop
})
beforeEach(async () => {
  // Nothing of an earlier test is polled.
  await database.sql`update mediadock.requests set next_poll_at = null where landed_at is not null`
  stand.calls.length = 0
  stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
})

function resultOf(requestId: string) {
  return eventually(async () => {
    const [row] =
      await database.sql`select * from mediadock.results where request_id = ${requestId} and landed_at is not null`
    return row
  })
}

/** The result after the reconciler has polled it. */
async function completed(requestId: string) {
  await resultOf(requestId)
  await receiver.deps.background.reconcileNow()
  return resultOf(requestId)
}

async function mediaOf(requestId: string) {
  return [
    ...(await database.sql`select kind, position, url, original_url, width, height, duration_seconds from mediadock.media
    where request_id = ${requestId} order by kind, position`),
  ]
}

async function settled(webhookId: string) {
  return eventually(async () => {
    const [row] = await database.sql`select d.*, i.delivery_id is null as done from mediadock.deliveries d
      left join mediadock.inbox i on i.delivery_id = d.id where webhook_id = ${webhookId}`
    return row?.['done'] ? row : undefined
  })
}

describe('landing', () => {
  it('completes a result of several pictures through the result endpoint', async () => {
    const { body, requestId } = okImage()
    stand.answer((id, _req, res) => json(res, 200, imageResult(id, 3)))
    await deliver(receiver.webhookUrl, body)
    const row = await completed(requestId)
    expect(row).toMatchObject({
      status: 'COMPLETED',
      media_complete: true,
      cost: '4',
      source: 'webhook',
      key_name: 'live',
      sandbox: false,
      model: 'aurora-image',
    })
    expect(row['output'].images).toHaveLength(3)
    expect(row['completed_at'].toISOString()).toBe('2026-01-01T00:00:09.000Z')
    expect(await mediaOf(requestId)).toEqual(
      [0, 1, 2].map((position) => ({
        kind: 'image',
        position,
        url: `https://media.test/${requestId}-${position}.png`,
        original_url: `https://media.test/${requestId}-${position}-original.png`,
        width: 640,
        height: 480,
        duration_seconds: null,
      })),
    )
    expect(stand.calls).toEqual([{ path: `/v1/requests/${requestId}`, authorization: `Bearer ${liveKey.api_key}` }])
  })

  it('takes width, height and duration of a video from the result endpoint', async () => {
    const { body, requestId } = okVideo()
    stand.answer((id, _req, res) =>
      json(res, 200, {
        ...imageResult(id),
        output: { video: { url: `https://media.test/${id}.mp4`, width: 1280, height: 720, duration: 4.5 } },
      }),
    )
    await deliver(receiver.webhookUrl, body)
    expect(await completed(requestId)).toMatchObject({ status: 'COMPLETED', media_complete: true })
    expect(await mediaOf(requestId)).toMatchObject([
      { kind: 'video', position: 0, width: 1280, height: 720, duration_seconds: 4.5 },
    ])
  })

  it.each([
    [
      'of one picture',
      (url: string) => ({ images: [{ url, width: 640, height: 480, original_url: `${url}?full` }] }),
      0,
    ],
    ['of one video', (url: string) => ({ video: { url, width: 1280, height: 720, duration: 4.5 } }), 0],
    ['with a further member', (url: string) => ({ audio: { url, duration: 12, loudness: -14 } }), 1],
    ['of a list of one', (url: string) => ({ audio: [{ url }] }), 1],
  ])('stores an output %s only where its media do not express it, and shows it whole', async (_, outputOf, stored) => {
    const { body, requestId } = okAudio()
    const output = outputOf(`https://media.test/${requestId}`)
    stand.answer((id, _req, res) => json(res, 200, { ...imageResult(id), output }))
    await deliver(receiver.webhookUrl, body)
    await eventually(async () => (await completed(requestId))['media_complete'])
    expect((await resultOf(requestId))['output']).toEqual(output)
    const rows = await database.sql`
      select count(output)::int as stored from mediadock.requests where request_id = ${requestId}`
    expect(rows).toMatchObject([{ stored }])
  })

  it('lands an OK at once from the webhook, without a call, and completes it as soon as it is polled', async () => {
    const { body, requestId } = okAudio()
    stand.answer((id, _req, res) =>
      json(res, 200, { ...imageResult(id), output: { audio: { url: `https://media.test/${id}.mp3`, duration: 12 } } }),
    )
    await deliver(receiver.webhookUrl, body)
    expect(await resultOf(requestId)).toMatchObject({
      status: 'COMPLETED',
      media_complete: false,
      cost: '2',
      completed_at: null,
    })
    expect(stand.calls).toEqual([])
    expect(await completed(requestId)).toMatchObject({ media_complete: true, source: 'webhook' })
    expect((await resultOf(requestId))['completed_at']).not.toBeNull()
    expect(await mediaOf(requestId)).toMatchObject([{ kind: 'audio', duration_seconds: 12 }])
  })

  it('makes an ERROR a FAILED result, without a call', async () => {
    const { body, requestId } = failed()
    await deliver(receiver.webhookUrl, body)
    expect(await resultOf(requestId)).toMatchObject({
      status: 'FAILED',
      cost: '0',
      error_code: 'GENERATION_FAILED',
      error_message: 'the model gave up',
      media_complete: true,
      output: null,
    })
    expect(stand.calls).toEqual([])
  })

  it('keeps the tracked metadata and key', async () => {
    const { body, requestId } = failed()
    await database.sql`insert into mediadock.requests (request_id, model, key_name, metadata)
      values (${requestId}, 'aurora-image', 'live', '{"order":7}') on conflict do nothing`
    await deliver(receiver.webhookUrl, body)
    expect(await resultOf(requestId)).toMatchObject({
      status: 'FAILED',
      metadata: { order: 7 },
      model: 'aurora-image',
      key_name: 'live',
    })
  })

  it('notifies readers once, in the transaction that wrote the row', async () => {
    const notices: unknown[] = []
    const listening = await database.sql.listen('mediadock_results', (payload) => notices.push(JSON.parse(payload)))
    const { body, requestId } = failed()
    await deliver(receiver.webhookUrl, body)
    await deliver(receiver.webhookUrl, body, { webhookId: randomUUID() })
    await eventually(
      async () => (await database.sql`select from mediadock.attempts where outcome = 'no_effect'`).length > 0,
    )
    await eventually(() => notices.some((item) => JSON.stringify(item).includes(requestId)))
    expect(notices.filter((item) => JSON.stringify(item).includes(requestId))).toEqual([
      { request_id: requestId, status: 'FAILED', media_complete: true },
    ])
    await listening.unlisten()
  })

  it('flags media on a host that MEDIA_HOSTS does not name', async () => {
    const { body } = okImage()
    const elsewhere = Buffer.from(body.toString().replaceAll('https://media.test', 'https://elsewhere.test'))
    const webhookId = randomUUID()
    await deliver(receiver.webhookUrl, elsewhere, { webhookId })
    expect(await settled(webhookId)).toMatchObject({ flags: ['foreign_host'], parked_reason: null })
  })

  it('parks a delivery signed with a key of the other environment', async () => {
    const { body, requestId } = failed()
    await database.sql`insert into mediadock.requests (request_id, key_name) values (${requestId}, 'live')`
    const webhookId = randomUUID()
    const answer = await deliver(receiver.webhookUrl, body, { webhookId, secret: sandboxKey.signing_secret })
    expect(answer.json).toEqual({ status: 'accepted' })
    expect(await settled(webhookId)).toMatchObject({ parked_reason: 'key_mismatch', flags: ['key_mismatch'] })
    const [row] = await database.sql`select status from mediadock.requests where request_id = ${requestId}`
    expect(row).toEqual({ status: 'IN_QUEUE' })
  })
})

describe('when the provider cannot be called', () => {
  it.each<[string, Parameters<ProviderStand['answer']>[0]]>([
    ['answers 500', (_id, _req, res) => json(res, 500, {})],
    ['answers 404', (_id, _req, res) => json(res, 404, {})],
    [
      'answers 202',
      (id, _req, res) =>
        json(res, 202, { request_id: id, status: 'IN_PROGRESS', queue_position: null, progress: 90, logs: [] }),
    ],
    ['answers HTML', (_id, _req, res) => res.writeHead(200, { 'content-type': 'text/html' }).end('<html>')],
    ['answers another request', (_id, _req, res) => json(res, 200, imageResult(randomUUID()))],
    [
      'answers pictures without url',
      (id, _req, res) => json(res, 200, { ...imageResult(id), output: { images: [{ width: 1, height: 1 }] } }),
    ],
    ['answers no picture', (id, _req, res) => json(res, 200, { ...imageResult(id), output: { images: [] } })],
    ['redirects', (_id, _req, res) => res.writeHead(302, { location: 'http://127.0.0.1:1/' }).end()],
    ['hangs up', (_id, req) => req.socket.destroy()],
    ['answers more than 4 MiB', (_id, _req, res) => res.writeHead(200).end(Buffer.alloc(5 * 1024 * 1024, ' '))],
    [
      'answers half of its JSON',
      (id, _req, res) => res.writeHead(200).end(JSON.stringify(imageResult(id)).slice(0, 60)),
    ],
  ])('because it %s: lands the first link now and completes it later', async (_what, answer) => {
    const { body, requestId } = okImage()
    stand.answer(answer)
    await deliver(receiver.webhookUrl, body)
    expect(await resultOf(requestId)).toMatchObject({ status: 'COMPLETED', media_complete: false, cost: '4' })
    expect(await mediaOf(requestId)).toMatchObject([
      { position: 0, url: `https://media.test/${requestId}.png`, width: null },
    ])

    stand.answer((id, _req, res) => json(res, 200, imageResult(id, 2)))
    receiver.setNow(new Date(Date.now() + 20 * 60_000))
    await eventually(async () => {
      await receiver.deps.background.reconcileNow()
      const [row] = await database.sql`select media_complete from mediadock.results where request_id = ${requestId}`
      return row?.['media_complete'] === true
    })
    receiver.setNow(undefined)
    expect(await mediaOf(requestId)).toHaveLength(2)
    expect(await resultOf(requestId)).toMatchObject({ status: 'COMPLETED', source: 'webhook' })
  })
})

describe('a provider that is down', () => {
  it("is soon no longer called for each delivery, and the webhooks' content lands", async () => {
    stand.answer((_id, req) => req.socket.destroy())
    const samples = Array.from({ length: 60 }, () => okImage())
    for (const { body } of samples) await deliver(receiver.webhookUrl, body)
    for (const { requestId } of samples)
      expect(await resultOf(requestId)).toMatchObject({ status: 'COMPLETED', media_complete: false })
    await receiver.deps.background.reconcileNow()
    expect(stand.calls.length).toBeLessThan(30)

    stand.answer((id, _req, res) => json(res, 200, imageResult(id)))
    receiver.setNow(new Date(Date.now() + 3600_000))
    // The first run only finds out that it is back.
    await receiver.deps.background.reconcileNow()
    await receiver.deps.background.reconcileNow()
    receiver.setNow(undefined)
    for (const { requestId } of samples) expect(await resultOf(requestId)).toMatchObject({ media_complete: true })
  })
})

describe('order and contradiction', () => {
  it('the first of two webhooks stays and the second is flagged until the result endpoint decides', async () => {
    const requestId = randomUUID()
    const second = randomUUID()
    stand.answer((_id, _req, res) => json(res, 500, {}))
    await deliver(receiver.webhookUrl, okAudio(requestId).body)
    await resultOf(requestId)
    await deliver(receiver.webhookUrl, failed(requestId).body, { webhookId: second })
    expect(await settled(second)).toMatchObject({ flags: ['contradiction'] })
    expect(await resultOf(requestId)).toMatchObject({ status: 'COMPLETED' })

    stand.answer((id, _req, res) =>
      json(res, 200, {
        request_id: id,
        status: 'FAILED',
        error: { code: 'GENERATION_FAILED', message: 'no' },
        cost: 0,
      }),
    )
    receiver.setNow(new Date(Date.now() + 3600_000))
    await receiver.deps.background.reconcileOne(requestId)
    receiver.setNow(undefined)
    expect(await resultOf(requestId)).toMatchObject({ status: 'FAILED', error_message: 'no', output: null })
    expect(await mediaOf(requestId)).toEqual([])
    const flags =
      await database.sql`select status, flags from mediadock.deliveries where request_id = ${requestId} order by status`
    expect(flags.map((row) => [row['status'], row['flags']])).toEqual([
      // A confirmed end is no contradiction any more. The attempts still record the former one.
      ['ERROR', []],
      ['OK', ['contradiction']],
    ])
    const attempts =
      await database.sql`select outcome from mediadock.attempts join mediadock.deliveries on id = delivery_id where webhook_id = ${second}`
    expect(attempts.map((row) => row['outcome'])).toEqual(['contradiction'])
  })

  it.each(['CANCELED', 'FAILED'] as const)('an OK whose result turns out to be %s is flagged', async (status) => {
    const { body, requestId } = okImage()
    const webhookId = randomUUID()
    stand.answer((id, _req, res) =>
      json(res, 200, {
        request_id: id,
        status,
        ...(status === 'FAILED' && { error: { code: 'GENERATION_FAILED', message: 'no' }, cost: 0 }),
      }),
    )
    await deliver(receiver.webhookUrl, body, { webhookId })
    await settled(webhookId)
    expect(await completed(requestId)).toMatchObject({ status })
    expect(await settled(webhookId)).toMatchObject({ flags: ['contradiction'] })
  })

  it('a result that the provider confirmed is not changed by a webhook', async () => {
    const requestId = randomUUID()
    const late = randomUUID()
    await deliver(receiver.webhookUrl, okImage(requestId).body)
    expect(await completed(requestId)).toMatchObject({ status: 'COMPLETED', media_complete: true })
    await deliver(receiver.webhookUrl, failed(requestId).body, { webhookId: late })
    expect(await settled(late)).toMatchObject({ flags: ['contradiction'] })
    expect(await resultOf(requestId)).toMatchObject({ status: 'COMPLETED', media_complete: true })
  })
})

describe('reconciling', () => {
  it('finds results without a webhook: completed, failed, canceled', async () => {
    const ids = [randomUUID(), randomUUID(), randomUUID()]
    await database.sql`insert into mediadock.requests ${database.sql(ids.map((request_id) => ({ request_id, key_name: 'live' })))}`
    stand.answer((id, _req, res) => {
      if (id === ids[0]) return json(res, 200, imageResult(id))
      if (id === ids[1])
        return json(res, 200, {
          request_id: id,
          status: 'FAILED',
          error: { code: 'GENERATION_FAILED', message: 'no' },
          cost: 0,
        })
      return json(res, 200, { request_id: id, status: 'CANCELED' })
    })
    await receiver.deps.background.reconcileNow()
    expect(stand.calls).toEqual([])
    receiver.setNow(new Date(Date.now() + 121_000))
    await receiver.deps.background.reconcileNow()
    receiver.setNow(undefined)
    expect(await Promise.all(ids.map(async (id) => (await resultOf(id))['status']))).toEqual([
      'COMPLETED',
      'FAILED',
      'CANCELED',
    ])
    expect(await resultOf(ids[0]!)).toMatchObject({ source: 'reconciler' })
  })

  it('uses remaining calls for the longest overdue requests', async () => {
    const narrow = await startTestReceiver({
      databaseUrl: database.url,
      providerUrl: stand.url,
      settings: { fetchRatePerMinute: 5 },
    })
    for (let round = 0; round < 8; round += 1) {
      await database.sql`delete from mediadock.call_budgets`
      // By when it does not remember any more that there were none.
      narrow.setNow(new Date(Date.now() + round * 6000))
      const ids = Array.from({ length: 12 }, () => randomUUID())
      const rows = ids.map((request_id, at) => ({
        request_id,
        key_name: 'live',
        tracked_at: new Date(Date.now() - 3600_000 + at * 1000),
      }))
      await database.sql`insert into mediadock.requests ${database.sql(rows.toSorted(() => Math.random() - 0.5))}`
      await narrow.deps.background.reconcileNow()
      // Five a minute, of which one is left to submits and one to landing.
      const landed =
        await database.sql`select request_id from mediadock.results where request_id = any(${ids}) and landed_at is not null`
      expect(new Set(landed.map((row) => row['request_id']))).toEqual(new Set(ids.slice(0, 3)))
      await database.sql`delete from mediadock.requests where request_id = any(${ids})`
    }
    await narrow.stop()
  })
})
