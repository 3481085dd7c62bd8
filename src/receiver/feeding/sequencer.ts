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

/*
 * The SQL function `sequence_changes()` gives positions to changes of results. Its present text is in the migration
 * 0008_notify_guard. One call, which is one transaction:
 *
 * 1. It looks for committed rows of `changes` that the call before (`since`) could not see. Without any, it ends and
 *    returns its snapshot as `seen`: it has locked and written nothing.
 * 2. It locks the row of `feed_bounds` until its commit, so one replica at a time continues.
 * 3. It reads the last position, in a newer snapshot than the lock: it sees all that earlier calls have written.
 * 4. In one statement, with another snapshot, it deletes up to `most` of those rows of `changes`, lowest ids first, and
 *    writes them to `feed_entries`. They are numbered in the order of their ids. The first number is the last position
 *    plus one, or the time in microseconds if that is greater.
 * 5. It returns the snapshot of step 4 as `seen`, the next `since`; or null if it took `most` rows, since more may wait.
 *
 * Why readers miss no change, and see those of a request in order:
 *
 * - Positions become visible in order. By 2, the next call numbers only after this one has committed; by 3, it numbers
 *   higher. So after a reader has seen a position, no lower one appears.
 * - No change is skipped or numbered twice. Its row leaves `changes` in the transaction that numbers it. A change that
 *   is not committed at step 4 is not in `seen`, so a later call takes it. It delays no other.
 * - Changes of one request keep their order. The id of a change is drawn while the row of its request is locked, and
 *   that lock ends with the commit. So the later change has the higher id, and is committed after the earlier one. When
 *   a call takes the later one, an earlier call has taken the other, or this call sees both and numbers it first.
 *
 * Positions grow by the clock, so that they also grow after a failover to a standby that was behind, or in a restored
 * dump.
 */

/**
 * Assigns positions to changes that have landed, by the algorithm above. A round passes `since` so that it need not read
 * the whole queue again and again during a dump, which keeps deleted rows from being vacuumed. Transaction ids are
 * meaningless on another server, and on one that has crashed. A round sequences the changes of at most 200 statements,
 * of up to 500 results each; tests lower `maxStatements`.
 */
export function createSequencer(deps: SequencerDeps, { maxStatements = 200 } = {}) {
  let last: SeenSnapshot | undefined

  return {
    /** Assigns positions to changes that have landed. */
    runOnce: async () => {
      // A round looks through all changes now and then. No case is known in which the shorter look misses one.
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
