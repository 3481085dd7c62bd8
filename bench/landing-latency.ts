import { randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import type postgres from 'postgres'
import { sign } from '../src/wire/signature.ts'
import { audioNotification, signingSecret } from './signed-requests.ts'

export type Landings = { samples: number; fromAcknowledged: Percentiles; fromSent: Percentiles }
export type Percentiles = { p50Ms: number; p99Ms: number }

const pauseMs = 20
const warmUps = 50

/**
 * One delivery at a time on an otherwise idle receiver: how long after its 200
 * the row of results is there for others. The NOTIFY that is committed with the
 * row tells when, so its own way here is counted in.
 */
export async function measureLandings(webhooksUrl: string, sql: postgres.Sql, samples: number): Promise<Landings> {
  const landed = new Map<string, (at: number) => void>()
  const listening = await onLandings(sql, (requestId) => landed.get(requestId)?.(performance.now()))
  const fromAcknowledged: number[] = []
  const fromSent: number[] = []
  for (let sample = -warmUps; sample < samples; sample += 1) {
    const { requestId, body } = audioNotification()
    const { promise, resolve } = Promise.withResolvers<number>()
    landed.set(requestId, resolve)
    const sentAt = performance.now()
    await post(webhooksUrl, body)
    const acknowledgedAt = performance.now()
    const landedAt = await promise
    landed.delete(requestId)
    const [row] = await sql`select status from mediadock.results where request_id = ${requestId}`
    if (row?.['status'] !== 'COMPLETED') throw new Error(`${requestId} was announced and is not in results`)
    // It can be there before the answer has been read here.
    if (sample >= 0) fromAcknowledged.push(Math.max(0, landedAt - acknowledgedAt))
    if (sample >= 0) fromSent.push(landedAt - sentAt)
    await delay(pauseMs)
  }
  await listening.unlisten()
  return { samples, fromAcknowledged: percentiles(fromAcknowledged), fromSent: percentiles(fromSent) }
}

export async function onLandings(sql: postgres.Sql, landed: (requestId: string) => void): Promise<{ unlisten: () => Promise<void> }> {
  return sql.listen('mediadock_results', (payload) => {
    const { request_id: requestId }: { request_id: string } = JSON.parse(payload)
    landed(requestId)
  })
}

async function post(url: string, body: Buffer): Promise<void> {
  const t = Math.floor(Date.now() / 1000)
  const headers = {
    'content-type': 'application/json',
    'x-service-webhook-id': randomUUID(),
    'x-service-timestamp': String(t),
    'x-service-signature': sign(body, signingSecret, t),
  }
  const answer = await fetch(url, { method: 'POST', headers, body: new Uint8Array(body) })
  const text = await answer.text()
  if (text !== '{"status":"accepted"}') throw new Error(`unexpected answer: ${answer.status} ${text}`)
}

export function percentiles(values: readonly number[]): Percentiles {
  const sorted = [...values].sort((a, b) => a - b)
  const at = (share: number) => sorted[Math.min(Math.floor(sorted.length * share), sorted.length - 1)] ?? NaN
  return { p50Ms: at(0.5), p99Ms: at(0.99) }
}
