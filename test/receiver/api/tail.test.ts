import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { startTestReceiver, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call } from './calls.ts'

let database: TestDatabase
let receiver: TestReceiver

beforeAll(async () => {
  const its = await withReceiver()
  ;({ database, receiver } = its)
  return its.stop
})

type Event = { id: string; webhookId: string }

/** Opens the tail and collects its events until the test is over. */
async function tail(query = '', headers: Record<string, string> = {}, from: TestReceiver = receiver) {
  const client = new AbortController()
  onTestFinished(() => client.abort())
  const response = await fetch(`${from.internalUrl}api/arrivals?${query}`, {
    headers: { accept: 'text/event-stream', ...headers },
    signal: client.signal,
  })
  const events: Event[] = []
  const state = { text: '', ended: false }
  const read = async () => {
    for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
      state.text += chunk
      const blocks = state.text.split('\n\n')
      events.length = 0
      for (const block of blocks.slice(0, -1)) {
        const [, id = ''] = /^id: (.*)$/m.exec(block) ?? []
        const [, data] = /^data: (.*)$/m.exec(block) ?? []
        if (data !== undefined) events.push({ id, webhookId: JSON.parse(data).webhook_id })
      }
    }
  }
  const ended = read()
    .catch(() => {})
    .finally(() => {
      state.ended = true
    })
  return { response, events, state, ended, close: () => client.abort() }
}

const send = async (secret?: string) => {
  const webhookId = randomUUID()
  await deliver(receiver.webhookUrl, failed().body, { webhookId, ...(secret !== undefined && { secret }) })
  return webhookId
}

describe('GET /api/arrivals as an event stream', () => {
  it('sends each arrival once, within a second, and no earlier ones', async () => {
    const before = await send()
    await eventually(
      async () => (await database.sql`select from mediadock.arrivals where webhook_id = ${before}`).length === 1,
    )
    const { response, events } = await tail()
    expect(response.status).toBe(200)
    expect(response.headers.get('content-type')).toMatch(/^text\/event-stream/)
    const sent: string[] = []
    const waitedMs: number[] = []
    for (let n = 0; n < 7; n += 1) {
      sent.push(await send())
      const started = performance.now()
      await eventually(() => events.length === sent.length)
      waitedMs.push(performance.now() - started)
    }
    expect(events.map(({ webhookId }) => webhookId)).toEqual(sent)
    // The median: the machine of the tests does other things too.
    expect(waitedMs.sort((a, b) => a - b)[3]).toBeLessThan(5000)
  })

  it('respects filters', async () => {
    const refused = await tail('outcome=refused')
    const ofSandbox = await tail('key_name=sandbox')
    await send()
    const forged = await send('whsec_forged')
    await send()
    const last = await send('whsec_forged')
    await eventually(() => refused.events.some(({ webhookId }) => webhookId === last))
    expect(refused.events.map(({ webhookId }) => webhookId)).toEqual([forged, last])
    expect(ofSandbox.events).toEqual([])
  })

  it('sends a row that was written after later ones', async () => {
    const { events } = await tail()
    const first = await send()
    await eventually(() => events.length === 1)
    await database.sql`insert into mediadock.arrivals (arrived_at, outcome, status, ack_ms, webhook_id)
      values (${new Date(Date.now() - 5).toISOString()}, 'accepted', 200, 30000, 'slow')`
    await eventually(() => events.some(({ webhookId }) => webhookId === 'slow'))
    expect(events.map(({ webhookId }) => webhookId)).toEqual([first, 'slow'])
  })

  it('continues after the last event that a client received', async () => {
    const one = await tail()
    const sent = [await send(), await send(), await send()]
    await eventually(() => one.events.length === 3)
    one.close()
    const { events } = await tail('', { 'last-event-id': one.events[0]!.id })
    await eventually(() => events.length === 2)
    expect(events.map(({ webhookId }) => webhookId)).toEqual(sent.slice(1))
  })

  it('refuses wrong filters and foreign ids before it begins', async () => {
    const accept = { accept: 'text/event-stream' }
    expect(await call(receiver, 'GET /api/arrivals?outcome=lost', { headers: accept })).toMatchObject({
      status: 400,
      json: { error: { code: 'invalid_filter' } },
    })
    const resumed = await call(receiver, 'GET /api/arrivals', { headers: { ...accept, 'last-event-id': 'x' } })
    expect(resumed).toMatchObject({
      status: 400,
      json: { error: { message: expect.stringMatching(/^Last-Event-ID: /) } },
    })
  })

  it('serves at most 20 clients, and another when one leaves', async () => {
    const tails = await Promise.all(Array.from({ length: 20 }, () => tail()))
    await eventually(async () => {
      const { status, json, headers } = await call(receiver, 'GET /api/arrivals', {
        headers: { accept: 'text/event-stream' },
      })
      return status === 503 && json.error.code === 'too_many_waiting' && headers.get('retry-after') === '5'
    })
    for (const { close } of tails) close()
    await eventually(async () => (await tail()).response.status === 200)
  })

  it('ends when the receiver stops', async () => {
    const other = await startTestReceiver({ databaseUrl: database.url })
    const { state, ended } = await tail('', {}, other)
    await eventually(() => state.text.includes('retry:'))
    expect(state.ended).toBe(false)
    const started = performance.now()
    await other.stop()
    await ended
    expect(performance.now() - started).toBeLessThan(12_000)
  })
})
