import { setTimeout as delay } from 'node:timers/promises'
import type postgres from 'postgres'
import { sharedNowMs } from './load.ts'
import { connections, untilLanded, type Rig } from './rig.ts'
import type { Kind } from './signed-requests.ts'

export type Latency = {
  perSecond: number
  samples: number
  /** To the answer, which the commit of the delivery precedes. */
  answeredP50Ms: number
  p50Ms: number
  p99Ms: number
  missing: number
}

export type Heard = { requestId: string; mediaComplete: boolean; atMs: number }

/** Every NOTIFY that is committed with a row of results, with the time at which it came. */
export async function onResults(sql: postgres.Sql, heard: (one: Heard) => void): Promise<() => Promise<void>> {
  const listening = await sql.listen('mediadock_results', (payload) => {
    const atMs = sharedNowMs()
    const { request_id: requestId, media_complete: mediaComplete }: { request_id: string; media_complete: boolean } =
      JSON.parse(payload)
    heard({ requestId, mediaComplete, atMs })
  })
  return () => listening.unlisten()
}

const settleMs = 30_000

/**
 * From when a delivery should have been sent to the NOTIFY of its row of results, which of an
 * image has to be the complete one, at a steady rate. One whose row does not come within half a minute counts as one that never comes.
 */
export async function measureLatency(
  { generator, receiver, sql }: Rig,
  { perSecond, seconds, kind }: { perSecond: number; seconds: number; kind: Kind },
): Promise<Latency> {
  const thereAt = new Map<string, number>()
  const unlisten = await onResults(sql, ({ requestId, mediaComplete, atMs }) => {
    if ((mediaComplete || kind === 'direct') && !thereAt.has(requestId)) thereAt.set(requestId, atMs)
  })
  try {
    const requests = Math.round(perSecond * seconds)
    const {
      sent,
      acknowledged,
      refused,
      firstRefusal,
      p50Ms: answeredP50Ms,
    } = await generator.run({
      url: receiver.webhooksUrl,
      connections,
      requests,
      kind,
      perSecond,
      withIds: true,
    })
    if (acknowledged < requests) {
      const how = `${refused} refused, the others without an answer${firstRefusal ? `; the first: ${firstRefusal}` : ''}`
      const complaints = await receiver.complaints()
      throw new Error(
        `${requests - acknowledged} of ${requests} deliveries were not acknowledged (${how})\n${complaints}`,
      )
    }
    const deadline = performance.now() + settleMs
    // Completions of an earlier load are announced too. They do not count.
    const missing = () => sent.filter(({ requestId }) => !thereAt.has(requestId)).length
    while (missing() > 0 && performance.now() < deadline) await delay(20)
    const latencies = sent
      .map(({ requestId, dueAtMs }) => (thereAt.get(requestId) ?? Infinity) - dueAtMs)
      .sort((a, b) => a - b)
    const at = (share: number) => latencies[Math.min(Math.floor(latencies.length * share), latencies.length - 1)] ?? NaN
    await expectInResults(sql, sent.slice(-200))
    return { perSecond, samples: requests, answeredP50Ms, p50Ms: at(0.5), p99Ms: at(0.99), missing: missing() }
  } finally {
    await unlisten()
    await untilLanded(sql)
  }
}

/** Resolves when the announced result can be read. */
async function expectInResults(sql: postgres.Sql, sent: readonly { requestId: string }[]): Promise<void> {
  const ids = sent.map(({ requestId }) => requestId)
  const [row] = await sql<{ n: number }[]>`
    select count(*)::int as n from unnest(${ids}::uuid[]) as i (id) where not exists (
      select from mediadock.results where request_id = i.id and status in ('COMPLETED', 'FAILED'))
      and not exists (select from mediadock.inbox join mediadock.deliveries d on d.id = delivery_id where d.request_id = i.id)`
  if (row?.n !== 0) throw new Error(`${row?.n} results were announced and are not there`)
}
