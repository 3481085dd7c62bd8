import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { pruneOnce } from '../../../src/receiver/upkeep/retention.ts'
import { type TestDatabase, usualServers } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { deliver, failed } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call } from './calls.ts'

describe.each(usualServers)('GET /api/feed (%s)', (server) => {
  let database: TestDatabase
  let receiver: TestReceiver

  beforeAll(async () => {
    const its = await withReceiver({ server })
    ;({ database, receiver } = its)
    return its.stop
  })

  const land = async (count: number) => {
    const ids: string[] = []
    for (let n = 0; n < count; n += 1) {
      const { requestId, body } = failed()
      await deliver(receiver.webhookUrl, body)
      await eventually(
        async () => (await database.sql`select from mediadock.feed where request_id = ${requestId}`).length > 0,
      )
      ids.push(requestId)
    }
    return ids
  }
  const head = async () => (await call(receiver, 'GET /api/feed?limit=1')).json.head as number
  const requestsOf = (data: { request_id: string }[]) => data.map(({ request_id }) => request_id)

  it('returns each change with its row and media, page by page', async () => {
    const after = await head()
    const ids = await land(3)
    const first = await call(receiver, `GET /api/feed?after=${after}&limit=2`)
    expect(first.json.data[0]).toMatchObject({
      position: expect.any(Number),
      request_id: ids[0],
      status: 'FAILED',
      media_complete: true,
      result: { request_id: ids[0], status: 'FAILED', error_code: 'GENERATION_FAILED', cost: 0 },
      media: [],
    })
    const second = await call(receiver, `GET /api/feed?after=${first.json.next_after}`)
    expect([...requestsOf(first.json.data), ...requestsOf(second.json.data)]).toEqual(ids)
    const none = await call(receiver, `GET /api/feed?after=${second.json.next_after}`)
    expect(none.json).toEqual({ data: [], next_after: second.json.next_after, head: second.json.next_after })
  })

  it('receives changes after any notification on the channel', async () => {
    const after = await head()
    const first = call(receiver, `GET /api/feed?after=${after}&wait=30`)
    await eventually(
      async () => (await database.sql`select from pg_stat_activity where query = 'listen "mediadock_feed"'`).length > 0,
    )
    await database.sql`select pg_notify('mediadock_feed', '9007199254740991')`
    const started = performance.now()
    const ids = await land(1)
    expect(requestsOf((await first).json.data)).toEqual(ids)
    expect(performance.now() - started).toBeLessThan(10_000)
  })

  it('waits for a change, at most as long as requested', async () => {
    const after = await head()
    const started = performance.now()
    const [id] = await Promise.all([land(1), call(receiver, `GET /api/feed?after=${after}&wait=30`)]).then(
      ([ids, { json }]) => {
        expect(requestsOf(json.data)).toEqual(ids)
        return ids
      },
    )
    expect(id).toBeDefined()
    expect(performance.now() - started).toBeLessThan(10_000)
    const { json } = await call(receiver, `GET /api/feed?after=${await head()}&wait=1`)
    expect(json.data).toEqual([])
  })

  it('bounds the bytes of a page', async () => {
    const after = await head()
    const ids = await land(3)
    await database.sql`update mediadock.requests set output = jsonb_build_object('x', repeat('x', 1500000)) where request_id = any(${ids}::uuid[])`
    const { json } = await call(receiver, `GET /api/feed?after=${after}`)
    expect(requestsOf(json.data)).toEqual(ids.slice(0, 2))
    expect(requestsOf((await call(receiver, `GET /api/feed?after=${json.next_after}`)).json.data)).toEqual(ids.slice(2))
  })

  it.each([
    ['after=x', 'after'],
    ['after=-1', 'after'],
    ['after=99999999999999999', 'after'],
    ['after=9007199254740993', 'after'],
    ['after=9000000000000000', 'after'],
    ['limit=0', 'limit'],
    ['limit=201', 'limit'],
    ['wait=61', 'wait'],
    ['cursor=x', 'cursor'],
  ])('refuses %s', async (query, parameter) => {
    const { status, json } = await call(receiver, `GET /api/feed?${query}`)
    expect({ status, ...json.error }).toMatchObject({
      status: 400,
      code: 'invalid_filter',
      message: expect.stringContaining(parameter),
    })
  })

  /** The events of a stream, as they come. */
  async function stream(query: string, headers: Record<string, string> = {}) {
    const client = new AbortController()
    onTestFinished(() => client.abort())
    const response = await fetch(`${receiver.internalUrl}api/feed?${query}`, {
      headers: { accept: 'text/event-stream', ...headers },
      signal: client.signal,
    })
    const state = { text: '', ended: false }
    const ended = (async () => {
      for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) state.text += chunk
    })()
      .catch(() => {})
      .finally(() => {
        state.ended = true
      })
    const events = () =>
      [...state.text.matchAll(/^id: (\d+)\ndata: (.*)$/gm)].map(([, id, data = '']) => ({ id, ...JSON.parse(data) }))
    return { response, state, events, ended, close: () => client.abort() }
  }

  it('streams each change once, and continues after Last-Event-ID', async () => {
    const after = await head()
    const first = await stream(`after=${after}`)
    expect(first.response.headers.get('content-type')).toContain('text/event-stream')
    const ids = await land(2)
    await eventually(() => first.events().length === 2)
    expect(requestsOf(first.events())).toEqual(ids)
    expect(first.events()[0]).toMatchObject({
      id: String(first.events()[0].position),
      result: { status: 'FAILED' },
      media: [],
    })
    first.close()
    const missed = await land(2)
    const second = await stream(`after=${after}`, { 'last-event-id': first.events()[1].id })
    const more = await land(1)
    await eventually(() => second.events().length === 3)
    expect(requestsOf(second.events())).toEqual([...missed, ...more])
  })

  it('refuses a malformed Last-Event-ID', async () => {
    const headers = { accept: 'text/event-stream', 'last-event-id': 'x' }
    const { status, json } = await call(receiver, 'GET /api/feed', { headers })
    expect({ status, ...json.error }).toMatchObject({
      status: 400,
      code: 'invalid_filter',
      message: expect.stringContaining('Last-Event-ID'),
    })
  })

  it('reports that the next change is no longer kept', async () => {
    const [id] = await land(1)
    const [row] = await database.sql`select position from mediadock.feed where request_id = ${id ?? randomUUID()}`
    const later = { ...receiver.deps, retentionDays: 30, clock: () => new Date(Date.now() + 31 * 86_400_000) }
    await pruneOnce(later, new AbortController().signal)
    const old = Number(row?.['position']) - 1
    const { status, json } = await call(receiver, `GET /api/feed?after=${old}`)
    expect({ status, ...json.error }).toMatchObject({
      status: 410,
      code: 'position_expired',
      message: expect.stringContaining(String(old)),
    })
    expect(
      (await call(receiver, `GET /api/feed?after=${old}`, { headers: { accept: 'text/event-stream' } })).status,
    ).toBe(410)
    // From the beginning is always possible.
    expect((await call(receiver, 'GET /api/feed')).status).toBe(200)
    // A cached page from the beginning must not hide a gap.
    await land(1)
    expect((await call(receiver, 'GET /api/feed?after=0')).json.data).not.toEqual([])
    expect((await call(receiver, `GET /api/feed?after=${old}`)).status).toBe(410)
  })
})
