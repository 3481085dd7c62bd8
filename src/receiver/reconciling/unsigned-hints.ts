import type { Counter } from 'prom-client'
import type { Logger } from '../../platform/logger.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { faultOf } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { askForExtraPoll, extraPollAt } from '../domain/poll-schedule.ts'

type UnsignedHintsDeps = { db: Database; time: SharedTime; logger: Logger; dropped: Counter }

/** Strangers may name any number of requests. One beyond these is polled at its own time, and is counted. */
const maxNoted = 1000

/**
 * Keeps the requests that unsigned webhooks name until the next round, about a second later. It wakes no role, since
 * anyone can send such webhooks at any rate. Only a request that is tracked, of that source and not confirmed gets an
 * extra poll, at most one a minute. A request that another transaction locks is tried again in the next round.
 */
export function createUnsignedHints({ db, time, logger, dropped }: UnsignedHintsDeps) {
  let noted = new Map<string, string | null>()
  const note = ({ sourceName, requestId }: { sourceName: string | null; requestId: string }): void => {
    if (noted.size < maxNoted) noted.set(requestId, sourceName)
    else if (!noted.has(requestId)) dropped.inc()
  }
  return {
    note,
    /** Makes the extra polls of the noted requests due, for the role that polls. */
    runOnce: async () => {
      if (noted.size === 0) return
      const hinted = noted
      noted = new Map()
      const noteAgain = (requestId: string) => note({ sourceName: hinted.get(requestId) ?? null, requestId })
      try {
        for (const { request_id } of await makeDue(db, hinted, time())) noteAgain(request_id)
      } catch (error) {
        if (faultOf(error) === 'server') {
          for (const requestId of hinted.keys()) noteAgain(requestId)
          throw error
        }
        dropped.inc(hinted.size)
        logger.warn(
          { err: error, requests: hinted.size },
          'Postgres refuses to schedule polls for unsigned webhooks; other polls continue',
        )
      }
    },
  }
}

/** Makes the extra polls due. Returns the requests that another transaction locks, without a change to them. */
async function makeDue(
  db: Database,
  hinted: ReadonlyMap<string, string | null>,
  now: SQL,
): Promise<readonly { request_id: string }[]> {
  return db.execute<{ request_id: string }>(sql`
    with open as (
      select r.request_id
      from unnest(${sql.param([...hinted.keys()])}::uuid[], ${sql.param([...hinted.values()])}::text[])
        as hinted (request_id, source_name), mediadock.requests r
      where r.request_id = any(array[hinted.request_id]) and r.source_name is not distinct from hinted.source_name
        and r.confirmed_at is null and ${extraPollAt} is null
    ),
    free as (
      select r.request_id from mediadock.requests r where r.request_id = any(array(select request_id from open))
        and r.confirmed_at is null and ${extraPollAt} is null
      for update skip locked
    ),
    due as (
      update mediadock.requests r set ${askForExtraPoll(now)}
      where r.request_id = any(array(select request_id from free))
    )
    select request_id from open except select request_id from free`)
}
