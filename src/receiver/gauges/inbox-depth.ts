import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { count, isNotNull, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import * as onCall from '../domain/on-call-schema.ts'
import * as schema from '../domain/schema.ts'

const deliveries = columnsOf(schema.deliveries)
const inbox = columnsOf(schema.inbox)
const replays = columnsOf(onCall.replays)

type InboxDepth = {
  pending: number
  oldestSeconds: number
  /** Why the last round failed, for the oldest delivery with a reason. */
  trouble: string | null
}

/** The rows read at each end of the order of due times: deliveries that are due, and those that were put off. */
const maxLookedAt = 1000

/**
 * Counts pending deliveries and returns the age of the oldest. A replayed delivery counts from the start of its replay.
 * In a full inbox, the oldest is searched among those that are due first and those that are due last.
 */
export async function inboxDepth(db: Executor, now: Date): Promise<InboxDepth> {
  const end = (order: SQL) => sql`
      (select ${list(inbox, 'delivery_id', 'trouble', 'replay_id')} from mediadock.inbox
       order by ${inbox.due_at} ${order} limit ${maxLookedAt})`
  const rows = await db.execute<InboxDepth>(sql`
    with looked_at as (${end(sql`asc`)} union ${end(sql`desc`)})
    select (select count(*)::int from mediadock.inbox) as pending,
           (array_agg(trouble order by since) filter (where trouble is not null))[1] as trouble,
           greatest(extract(epoch from ${now.toISOString()}::timestamptz - min(since)), 0)::float8 as "oldestSeconds"
    from looked_at
    left join lateral (
      select ${replays.started_at} from mediadock.replays
      where ${replays.id} = looked_at.replay_id limit 1) as replay on true
    cross join lateral (
      select greatest(${deliveries.received_at}, started_at) as since
      from mediadock.deliveries where ${deliveries.id} = looked_at.delivery_id limit 1) as d`)
  return one(rows, 'counting pending deliveries')
}

export async function countParked(db: Executor): Promise<number> {
  const isParked = isNotNull(schema.deliveries.parked_reason)
  const rows = await db.select({ n: count() }).from(schema.deliveries).where(isParked)
  return one(rows, 'counting parked deliveries').n
}
