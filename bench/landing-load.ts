import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { drizzle } from 'drizzle-orm/postgres-js'
import type postgres from 'postgres'
import { Pool } from 'undici'
import { deliveryId, toDelivery } from '../src/receiver/domain/delivery.ts'
import { storeDeliveries } from '../src/receiver/intake/store.ts'
import { sign } from '../src/wire/signature.ts'
import { onLandings, percentiles, type Percentiles } from './landing-latency.ts'
import { audioNotification, signingSecret } from './signed-requests.ts'

export type AtRate = { perSecond: number; samples: number; fromAcknowledged: Percentiles }

const connections = 64
const settleMs = 10_000

/**
 * Deliveries at a steady rate, whether or not the ones before are answered: how
 * long after its 200 each one's row of results is there, by its NOTIFY.
 */
export async function measureAtRate(
  webhooksUrl: string,
  sql: postgres.Sql,
  { perSecond, seconds }: { perSecond: number; seconds: number },
): Promise<AtRate> {
  const { origin, pathname } = new URL(webhooksUrl)
  const pool = new Pool(origin, { connections })
  const landedAt = new Map<string, number>()
  const acknowledgedAt = new Map<string, number>()
  const listening = await onLandings(sql, (requestId) => landedAt.set(requestId, performance.now()))
  const send = async () => {
    const { requestId, body } = audioNotification()
    const t = Math.floor(Date.now() / 1000)
    const headers = {
      'x-service-webhook-id': randomUUID(),
      'x-service-timestamp': String(t),
      'x-service-signature': sign(body, signingSecret, t),
    }
    const answer = await pool.request({ path: pathname, method: 'POST', headers, body })
    const text = await answer.body.text()
    if (text !== '{"status":"accepted"}') throw new Error(`unexpected answer: ${answer.statusCode} ${text}`)
    acknowledgedAt.set(requestId, performance.now())
  }
  const total = perSecond * seconds
  const sent: Promise<void>[] = []
  const started = performance.now()
  while (sent.length < total) {
    const due = Math.min(total, Math.floor(((performance.now() - started) / 1000) * perSecond))
    while (sent.length < due) sent.push(send())
    await delay(1)
  }
  await Promise.all(sent)
  const deadline = performance.now() + settleMs
  while (landedAt.size < total && performance.now() < deadline) await delay(10)
  await listening.unlisten()
  await pool.close()
  if (landedAt.size < total)
    throw new Error(`${total - landedAt.size} of ${total} deliveries had not landed ${settleMs} ms after the last 200`)
  // A row can be there before its answer has been read here.
  const latencies = [...acknowledgedAt].map(([requestId, at]) => Math.max(0, (landedAt.get(requestId) ?? NaN) - at))
  return { perSecond, samples: total, fromAcknowledged: percentiles(latencies) }
}

export type Backlog = { deliveries: number; landingsPerSecond: number }

const batchRows = 500

/** Puts so many deliveries into the inbox as if they had just been acknowledged, while no receiver runs. */
export async function fillInbox(sql: postgres.Sql, deliveries: number): Promise<void> {
  const db = drizzle(sql)
  for (let stored = 0; stored < deliveries; stored += batchRows) {
    const rows = Array.from({ length: Math.min(batchRows, deliveries - stored) }, () => {
      const { body } = audioNotification()
      const webhookId = randomUUID()
      const headers = { 'content-type': 'application/json', 'x-service-webhook-id': webhookId }
      const receivedAt = new Date()
      return toDelivery({
        id: deliveryId(webhookId, body),
        webhookId,
        keyName: 'bench',
        timestampSeconds: Math.floor(receivedAt.getTime() / 1000),
        receivedAt,
        headers,
        body,
      })
    })
    await storeDeliveries(db, rows)
  }
}

const drainMs = 120_000

/** How fast a receiver that has just been started empties a full inbox: all landings but the first batch, over the time between them. */
export async function measureBacklog(sql: postgres.Sql, deliveries: number): Promise<Backlog> {
  const deadline = performance.now() + drainMs
  for (let waiting = true; waiting; await delay(50)) {
    const [row] = await sql<{ waiting: boolean }[]>`select exists (select from mediadock.inbox) as waiting`
    waiting = row?.waiting ?? false
    if (performance.now() > deadline) throw new Error(`the inbox was not empty after ${drainMs} ms`)
  }
  const [row] = await sql<{ n: number; seconds: number }[]>`
    with batch as (select landed_at, count(*) as n from mediadock.requests group by landed_at)
    select (sum(n) - (array_agg(n order by landed_at))[1])::int as n, extract(epoch from max(landed_at) - min(landed_at))::float8 as seconds from batch`
  return { deliveries, landingsPerSecond: (row?.n ?? NaN) / (row?.seconds ?? NaN) }
}
