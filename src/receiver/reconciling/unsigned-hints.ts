import type { Counter } from 'prom-client'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { nextExtraPoll } from '../landing/verdict.ts'

export type UnsignedHints = {
  note: (hinted: { sourceName: string | null; requestId: string }) => void
  /** Makes the extra polls of the noted requests due, for the role that polls. */
  runOnce: () => Promise<void>
}

/** Strangers may name any number of requests. One beyond these is polled at its own time, and is counted. */
const maxNoted = 1000

/**
 * Keeps the requests that unsigned webhooks name until the next round, about a second later. It wakes no role, since
 * anyone can send such webhooks at any rate. Only a request that is tracked, of that source and not confirmed gets an
 * extra poll, at most one a minute.
 */
export function createUnsignedHints({
  db,
  time,
  dropped,
}: {
  db: Database
  time: SharedTime
  dropped: Counter
}): UnsignedHints {
  let noted = new Map<string, string | null>()
  return {
    note: ({ sourceName, requestId }) => {
      if (noted.size < maxNoted) noted.set(requestId, sourceName)
      else if (!noted.has(requestId)) dropped.inc()
    },
    runOnce: async () => {
      if (noted.size === 0) return
      const hinted = noted
      noted = new Map()
      await db.execute(sql`
        update mediadock.requests r set doubt_poll_at = ${nextExtraPoll(time())}
        from unnest(${sql.param([...hinted.keys()])}::uuid[], ${sql.param([...hinted.values()])}::text[])
          as hinted (request_id, source_name)
        where r.request_id = any(array[hinted.request_id]) and r.source_name is not distinct from hinted.source_name
          and r.confirmed_at is null and r.doubt_poll_at is null`)
    },
  }
}
