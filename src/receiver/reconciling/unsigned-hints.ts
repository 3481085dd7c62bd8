import type { Counter } from 'prom-client'
import type { Logger } from '../../platform/logger.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { faultOf } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { askForExtraPoll, needsExtraPoll } from '../domain/poll-schedule.ts'

type Hinted = { sourceName: string | null; requestId: string }

type UnsignedHintsDeps = { db: Database; time: SharedTime; logger: Logger; dropped: Counter }

/** Strangers may name any number of requests. One beyond these is polled at its own time, and is counted. */
const maxNoted = 1000

/**
 * Keeps the requests that unsigned webhooks name until the next round, about a second later. It wakes no role, since
 * anyone can send such webhooks at any rate. Only a request that is tracked, of that source and not confirmed gets an
 * extra poll, at most one a minute. A request that another transaction locks is tried again in the next round.
 */
export function createUnsignedHints({ db, time, logger, dropped }: UnsignedHintsDeps) {
  let noted = new Map<string, Hinted>()
  const note = (hinted: Hinted): void => {
    // Two sources may name the same id, and only one of them is the request's own.
    const name = `${hinted.sourceName} ${hinted.requestId}`
    if (noted.size < maxNoted) noted.set(name, hinted)
    else if (!noted.has(name)) dropped.inc()
  }
  return {
    note,
    /** Makes the extra polls of the noted requests due, for the role that polls. */
    runOnce: async () => {
      if (noted.size === 0) return
      const hinted = [...noted.values()]
      noted = new Map()
      try {
        const locked = new Set((await makeDue(db, hinted, time())).map(({ request_id }) => request_id))
        hinted.filter(({ requestId }) => locked.has(requestId)).forEach(note)
      } catch (error) {
        if (faultOf(error) === 'server') {
          hinted.forEach(note)
          throw error
        }
        dropped.inc(hinted.length)
        logger.warn(
          { err: error, requests: hinted.length },
          'Postgres refuses to schedule polls for unsigned webhooks; other polls continue',
        )
      }
    },
  }
}

/** Makes the extra polls due. Returns the requests that another transaction locks, without a change to them. */
async function makeDue(db: Database, hinted: readonly Hinted[], now: SQL): Promise<readonly { request_id: string }[]> {
  const requestIds = sql.param(hinted.map(({ requestId }) => requestId))
  const sourceNames = sql.param(hinted.map(({ sourceName }) => sourceName))
  return db.execute<{ request_id: string }>(sql`
    with open as (
      select r.request_id
      from unnest(${requestIds}::uuid[], ${sourceNames}::text[]) as hinted (request_id, source_name),
        mediadock.requests r
      where r.request_id = any(array[hinted.request_id]) and r.source_name is not distinct from hinted.source_name
        and r.confirmed_at is null and ${needsExtraPoll(now)}
    ),
    free as (
      select r.request_id from mediadock.requests r where r.request_id = any(array(select request_id from open))
        and r.confirmed_at is null and ${needsExtraPoll(now)}
      for update skip locked
    ),
    due as (
      update mediadock.requests r set ${askForExtraPoll(now)}
      where r.request_id = any(array(select request_id from free))
    )
    select request_id from open except select request_id from free`)
}
