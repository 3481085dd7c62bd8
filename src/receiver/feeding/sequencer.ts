import { setTimeout as delay } from 'node:timers/promises'
import { sql } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'

type SequencerDeps = {
  db: Database
  /** Called when the feed has grown. */
  onSequenced?: () => void
  signal: AbortSignal
}

type SeenSnapshot = { server: string; snapshot: string; at: number }

/**
 * Assigns positions to changes of results, with `sequence_changes()` of the migration 0008_notify_guard, which locks
 * the row of `feed_bounds`, so that one replica at a time does this. It writes committed changes to `feed_entries` in
 * the order of their ids, and deletes their rows of `changes`. A change of a transaction that is still open is
 * sequenced later and delays no other.
 *
 * A round looks only for changes that the last round could not see, by transaction ids. Otherwise it would read the
 * whole queue again and again during a dump, which keeps deleted rows from being vacuumed. Transaction ids are
 * meaningless on another server, and on one that has crashed. A round sequences the changes of at most 200
 * statements, of up to 500 results each; tests lower `maxStatements`.
 */
export function createSequencer(deps: SequencerDeps, { maxStatements = 200 } = {}) {
  let last: SeenSnapshot | undefined

  return {
    /** Assigns positions to changes that have landed. */
    runOnce: async () => {
      // After this long a round looks through all changes, in case a shorter look has missed one.
      const since = last !== undefined && performance.now() - last.at < 10_000 ? last : undefined
      last = undefined
      const rows = await deps.db.execute<{
        sequenced: number
        seen: string | null
        server: string
        known: boolean
      }>(sql`
        with server as materialized (select pg_postmaster_start_time()::text as started)
        select s.sequenced, s.seen::text as seen, server.started as server,
          server.started is not distinct from ${since?.server ?? null}::text as known
        from server, mediadock.sequence_changes(
          case when server.started = ${since?.server ?? null}::text then ${since?.snapshot ?? null}::pg_snapshot end,
          ${maxStatements}) s`)
      const { sequenced, seen, server, known } = one(rows, 'assigning positions in the feed')
      // `seen` is null where more changes wait than one round takes.
      if (seen !== null) last = { server, snapshot: seen, at: known && since ? since.at : performance.now() }
      if (sequenced > 0) deps.onSequenced?.()
      // Changes that arrive during this pause share the next round and its fsync.
      if (sequenced > 0 && seen !== null) await delay(40, undefined, { signal: deps.signal }).catch(() => {})
      return { more: seen === null }
    },
  }
}
