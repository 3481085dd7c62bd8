import { isAboutTheRow } from '../../runtime/postgres-errors.ts'
import { listDeliveries } from '../queries/deliveries.ts'
import { maxLimit, type DeliveryFilters } from '../queries/filters.ts'
import { replayDelivery, type Replay } from '../replay.ts'
import type { WorkerDeps } from '../worker.ts'

export type ReplayMany = {
  filters: DeliveryFilters
  dryRun: boolean
  cursor?: string | undefined
  /** At most this many in one call; `next_cursor` goes on. */
  limit: number
  /** Stops between two deliveries. */
  signal: AbortSignal
  onProgress?: (done: number) => void
}

export type ReplayedMany = Replay & { failed: { delivery_id: string; message: string }[]; next_cursor: string | null }

/** Few at a time: each may ask the provider, and landing comes first. */
const atOnce = 4

/** Replays what the filters choose, newest first. One that cannot be landed is told of and holds up no other. */
export async function replayMany(deps: WorkerDeps, { filters, dryRun, cursor, limit, signal, onProgress }: ReplayMany): Promise<ReplayedMany> {
  const all: ReplayedMany = { replayed: 0, changes: [], failed: [], next_cursor: cursor ?? null }
  let done = 0
  do {
    const page = await listDeliveries(deps.db, { ...filters, limit: Math.min(maxLimit, limit - done), cursor: all.next_cursor ?? undefined })
    for (let at = 0; at < page.data.length; at += atOnce) {
      if (signal.aborted) return all
      const some = page.data.slice(at, at + atOnce)
      await Promise.all(some.map(({ id }) => replayInto(deps, { id, dryRun, all })))
      done += some.length
      onProgress?.(done)
    }
    all.next_cursor = page.next_cursor
  } while (all.next_cursor !== null && done < limit)
  return all
}

async function replayInto(deps: WorkerDeps, { id, dryRun, all }: { id: string; dryRun: boolean; all: ReplayedMany }): Promise<void> {
  try {
    const replay = await replayDelivery(deps, id, { dryRun })
    all.replayed += replay?.replayed ?? 0
    all.changes.push(...(replay?.changes ?? []))
  } catch (error) {
    if (!isAboutTheRow(error)) throw error
    deps.logger.error({ err: error, delivery_id: id }, 'a delivery could not be replayed')
    all.failed.push({ delivery_id: id, message: 'Postgres refuses what it would write' })
  }
}
