import { setTimeout as delay } from 'node:timers/promises'
import { sql } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'

export type SequencerDeps = {
  db: Database
  /** There is something new in the feed. */
  onSequenced?: () => void
  signal: AbortSignal
}

export type Sequencer = {
  /** Gives positions to what has landed. */
  runOnce: () => Promise<{ more: boolean; sequenced: number }>
}

/** Statements that landed, in one round: of up to 500 results each. */
const maxChanges = 200
/** What comes while one rests shares the next round, and its fsync. */
const restMs = 40
/** How long only what is new is looked for: however it could be missed, it is found after this. */
const maxSinceMs = 10_000

type Seen = { server: string; snapshot: string; at: number }

/**
 * Gives the changes of results their positions, in `sequence_changes`: one
 * replica at a time and in the order of commits, whoever landed them. What a
 * transaction that is still open changed comes later, and holds nobody up.
 *
 * A round looks only for what its last one could not see, by the ids of
 * transactions: beside a dump, which keeps whatever is deleted from being swept,
 * the queue would otherwise be read whole again and again. Those ids mean
 * nothing on another server, nor on one that has crashed.
 */
export function createSequencer(deps: SequencerDeps, { maxRows = maxChanges } = {}): Sequencer {
  let last: Seen | undefined

  return {
    runOnce: async () => {
      const since = last !== undefined && performance.now() - last.at < maxSinceMs ? last : undefined
      last = undefined
      const rows = await deps.db.execute<{
        sequenced: number
        seen: string | null
        server: string
        known: boolean
      }>(sql`
        with server as materialized (select pg_postmaster_start_time()::text as started)
        select s.sequenced, s.seen::text as seen, server.started as server, server.started is not distinct from ${since?.server ?? null}::text as known
        from server, mediadock.sequence_changes(
          case when server.started = ${since?.server ?? null}::text then ${since?.snapshot ?? null}::pg_snapshot end, ${maxRows}) s`)
      const { sequenced, seen, server, known } = one(rows, 'giving positions to what has landed')
      if (seen !== null) last = { server, snapshot: seen, at: known && since ? since.at : performance.now() }
      if (sequenced > 0) deps.onSequenced?.()
      if (sequenced > 0 && seen !== null) await delay(restMs, undefined, { signal: deps.signal }).catch(() => {})
      return { more: seen === null, sequenced }
    },
  }
}
