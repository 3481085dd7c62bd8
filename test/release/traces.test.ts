import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import { deliveryId, toDelivery } from '../../src/receiver/domain/delivery.ts'
import type { TraceSettings } from '../../src/receiver/domain/trace-settings.ts'
import { storedSpanId } from '../../src/receiver/domain/trace.ts'
import { storeDeliveries } from '../../src/receiver/intake/store.ts'
import { watchedLogger } from '../platform/support/watched-logger.ts'
import { freePort } from '../provider/support/free-port.ts'
import { startCollector, type CollectedSpan } from '../support/collector.ts'
import { eventually } from '../support/eventually.ts'
import { defaultSource } from '../support/receiver.ts'
import { deliver, failed, nowSeconds, okImage } from '../support/webhooks.ts'
import { withReceiver } from '../support/with-receiver.ts'

const remote = { traceId: '4bf92f3577b34da6a3ce929d0e0e4736', spanId: '00f067aa0ba902b7' }
const traceparent = `00-${remote.traceId}-${remote.spanId}-01`
const hex = (id: string) => id.replaceAll('-', '')

async function traced(more: Partial<TraceSettings> = {}) {
  const collector = await startCollector()
  onTestFinished(collector.close)
  const { logger, lines } = watchedLogger()
  const traces: TraceSettings = {
    endpoint: `${collector.url}/v1/traces`,
    sampler: 'parentbased_always_on',
    ratio: 1,
    resource: { 'service.name': 'media' },
    ...more,
  }
  const { receiver, database, stop } = await withReceiver({ logger, settings: { traces } })
  let stopped: Promise<void> | undefined
  const stopOnce = () => (stopped ??= stop())
  onTestFinished(stopOnce)
  const logged = (msg: string) =>
    lines()
      .map((line): Record<string, unknown> => JSON.parse(line))
      .filter((line) => line['msg'] === msg)
  const named = (name: string) => collector.spans().filter((span) => span.name === name)
  const spanOf = (name: string, requestId: string) =>
    eventually(() => named(name).find(({ attributes }) => attributes['mediadock.request_id'] === requestId))
  return { collector, receiver, database, stop: stopOnce, logged, named, spanOf }
}

const places = (spans: readonly CollectedSpan[]) =>
  spans.map(({ traceId, parentSpanId }) => ({ traceId, parentSpanId }))

describe('the trace of a delivery', () => {
  it("spans arrival to row, within the provider's trace", async () => {
    const { collector, receiver, database, logged, spanOf, named } = await traced()
    const { requestId, body } = okImage()
    const webhookId = randomUUID()
    expect(await deliver(receiver.webhookUrl, body, { webhookId, headers: { traceparent } })).toMatchObject({
      status: 200,
    })

    const land = await spanOf('land', requestId)
    const receive = await spanOf('receive delivery', requestId)
    expect(places([receive])).toEqual([{ traceId: remote.traceId, parentSpanId: remote.spanId }])
    const within = { traceId: remote.traceId, parentSpanId: receive.spanId }
    expect(places([...named('verify'), ...named('accept'), land])).toEqual([within, within, within])
    expect(new Set(collector.spans().map(({ spanId }) => spanId)).size).toBe(4)

    const id = deliveryId(webhookId, body)
    const ids = { 'mediadock.delivery_id': id, 'mediadock.request_id': requestId }
    expect(receive).toMatchObject({
      kind: 2,
      code: 0,
      attributes: {
        ...ids,
        'messaging.message.id': webhookId,
        'mediadock.outcome': 'accepted',
        'http.request.method': 'POST',
        'http.route': '/webhooks',
        'http.response.status_code': 200,
      },
      resource: { 'service.name': 'media', 'service.version': expect.any(String), 'telemetry.sdk.language': 'nodejs' },
    })
    expect(land).toMatchObject({
      kind: 5,
      code: 0,
      attributes: { ...ids, 'mediadock.outcome': 'landed', 'mediadock.media': 1 },
    })
    // In the order in which it happened, to the millisecond of a clock.
    expect(receive.endMs).toBeGreaterThanOrEqual(receive.startMs)
    expect(land.startMs).toBeGreaterThanOrEqual(receive.startMs - 1)
    expect(Math.abs(land.endMs - Date.now())).toBeLessThan(60_000)

    const media = await database.sql`select 1 from mediadock.media where request_id = ${requestId}`
    expect(media).toHaveLength(1)
    expect(logged('webhook answered').map((line) => line['trace_id'])).toEqual([remote.traceId])
  })

  it("has the delivery's id if the provider sent no valid trace, and includes duplicates", async () => {
    const { receiver, logged, named, spanOf } = await traced()
    for (const headers of [{}, { traceparent: `00-${'0'.repeat(32)}-${remote.spanId}-01` }]) {
      const { requestId, body } = okImage()
      const webhookId = randomUUID()
      const id = deliveryId(webhookId, body)
      for (const status of ['accepted', 'duplicate'])
        expect(await deliver(receiver.webhookUrl, body, { webhookId, headers })).toMatchObject({ json: { status } })
      await spanOf('land', requestId)
      const received = () => named('receive delivery').filter(({ traceId }) => traceId === hex(id))
      await eventually(() => received().length === 2)
      expect(received().map(({ attributes }) => attributes['mediadock.outcome'])).toEqual(['accepted', 'duplicate'])
      expect(new Set(received().map(({ spanId }) => spanId)).size).toBe(2)
      expect(received().map(({ parentSpanId }) => parentSpanId)).toEqual(['', ''])
      expect(places([await spanOf('land', requestId)])).toEqual([{ traceId: hex(id), parentSpanId: storedSpanId(id) }])
      const line = logged('webhook answered').find((one) => one['delivery_id'] === id)
      expect(line?.['trace_id']).toBe(hex(id))
    }
  })

  it('continues in a process that did not accept the delivery, from stored data', async () => {
    const { receiver, spanOf } = await traced()
    const { requestId, body } = okImage()
    const webhookId = randomUUID()
    const id = deliveryId(webhookId, body)
    const authentic = {
      id,
      webhookId,
      keyName: 'live',
      environment: 'live' as const,
      timestampSeconds: nowSeconds(),
      receivedAt: new Date(),
      headers: { traceparent },
      body,
    }
    await storeDeliveries(receiver.deps.db, [toDelivery({ source: defaultSource, ...authentic })])
    const within = { traceId: remote.traceId, parentSpanId: storedSpanId(id) }
    expect(places([await spanOf('land', requestId)])).toEqual([within])
  })

  it('records failures: a refused arrival without its traceparent, and a refused row', async () => {
    const { collector, receiver, database, spanOf, named } = await traced()
    const forged = { secret: 'whsec_of_somebody_else', headers: { traceparent } }
    expect((await deliver(receiver.webhookUrl, failed().body, forged)).status).toBe(401)
    const [refused] = await eventually(() => named('receive delivery').length > 0 && named('receive delivery'))
    expect(refused).toMatchObject({ parentSpanId: '', code: 0, attributes: { 'error.type': 'no_matching_secret' } })
    expect(refused?.traceId).not.toBe(remote.traceId)

    await database.sql.unsafe(`
      create function refuse() returns trigger language plpgsql as $$ begin raise exception 'a secret' using errcode = '22023'; end $$;
      create trigger refuse before insert or update on mediadock.requests for each row execute function refuse()`)
    const refusedRow = failed()
    await deliver(receiver.webhookUrl, refusedRow.body)
    expect(await spanOf('land', refusedRow.requestId)).toMatchObject({
      code: 2,
      attributes: { 'error.type': '22023', 'mediadock.outcome': 'failed' },
    })
    expect(JSON.stringify(collector.spans())).not.toContain('a secret')
  })

  it('is sampled completely or not at all, in every process', async () => {
    const { receiver, named, stop } = await traced({ sampler: 'parentbased_traceidratio', ratio: 0.5 })
    const unwanted = `00-${remote.traceId}-${remote.spanId}-00`
    await deliver(receiver.webhookUrl, failed().body, { headers: { traceparent: unwanted } })
    for (let at = 0; at < 40; at += 1) await deliver(receiver.webhookUrl, failed().body)
    await eventually(() => named('land').length > 0)
    await stop()
    const received = named('receive delivery').map(({ traceId }) => traceId)
    expect(
      named('land')
        .map(({ traceId }) => traceId)
        .toSorted(),
    ).toEqual(received.toSorted())
    expect(received).not.toContain(remote.traceId)
    expect(received.length).toBeGreaterThan(4)
    expect(received.length).toBeLessThan(36)
  })
})

describe('a collector', () => {
  it('that refuses is logged once a minute, and every delivery is acknowledged and lands', async () => {
    const { collector, receiver, database, logged, spanOf } = await traced()
    collector.answer(400)
    for (const posts of [1, 2, 3]) {
      const { requestId, body } = failed()
      expect((await deliver(receiver.webhookUrl, body)).status).toBe(200)
      await eventually(() => collector.posts() >= posts)
      await eventually(
        async () => (await database.sql`select 1 from mediadock.results where request_id = ${requestId}`).length === 1,
      )
    }
    const complaints = logged('traces may be lost: OpenTelemetry reports a problem (see detail); deliveries continue')
    expect(complaints).toEqual([expect.objectContaining({ collector: new URL(collector.url).host })])
    // Traces continue when the collector accepts them again.
    collector.answer(200)
    const { requestId, body } = failed()
    await deliver(receiver.webhookUrl, body)
    await spanOf('land', requestId)
  })

  it('that is unreachable delays neither a delivery nor a stop', async () => {
    const { receiver, stop } = await traced({ endpoint: `http://127.0.0.1:${await freePort()}/v1/traces` })
    for (let at = 0; at < 20; at += 1) expect((await deliver(receiver.webhookUrl, failed().body)).status).toBe(200)
    // Into the first batch, which is tried again and again.
    await delay(1500)
    const started = performance.now()
    await stop()
    expect(performance.now() - started).toBeLessThan(6000)
  })

  it('gets the last spans of a process that stops', async () => {
    const { database, receiver, named, stop } = await traced()
    const { requestId, body } = failed()
    await deliver(receiver.webhookUrl, body)
    await eventually(
      async () => (await database.sql`select from mediadock.results where request_id = ${requestId}`).length > 0,
    )
    await stop()
    expect(named('land').map(({ attributes }) => attributes['mediadock.request_id'])).toEqual([requestId])
  })
})
