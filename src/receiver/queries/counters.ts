import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import { issues } from '../domain/on-call-schema.ts'
import { isOverdue, type StuckAfter } from '../reconciling/due.ts'
import { d, q, r } from './aliases.ts'
import { mayBeTheProviders } from './give-ups.ts'
import { newestFirst } from './page.ts'

const i = columnsOf(issues, 'i')

/** Counts of items that need attention, each up to `maxOnBadge`. */
export type Counters = { issues: number; critical: number; parked: number; quarantined: number; overdue: number }

/** A badge shows "999+" beyond this, since every page counts these rows. */
export const maxOnBadge = 1000

/** Omits muted issues, notices and refused arrivals of strangers. */
export async function readCounters(tx: Executor, when: StuckAfter & { now: Date }): Promise<Counters> {
  const muted = sql`coalesce(${i.muted_until} > ${when.now.toISOString()}::timestamptz, false)`
  const isOpen = sql`${i.closed_at} is null and ${i.severity} <> 'notice' and not ${muted}`
  // Each count reads in the order of an index, so outdated statistics cannot cause a scan of a whole table.
  const rows = await tx.execute<Counters>(sql`
    select ${upTo(sql`mediadock.issues i where ${isOpen}`)} as issues,
      ${upTo(sql`mediadock.issues i where ${isOpen} and ${i.severity} = 'critical'`)} as critical,
      ${upTo(sql`mediadock.deliveries d where ${d.parked_reason} is not null
        order by ${newestFirst({ at: d.received_at, id: d.id })}`)} as parked,
      ${upTo(sql`(
        select ${q.reason}, ${q.request_id}, ${q.source} from mediadock.quarantine q
        order by ${newestFirst({ at: q.arrived_at, id: q.id })} limit ${maxOnBadge}
      ) as q where ${mayBeTheProviders}`)} as quarantined,
      ${upTo(sql`mediadock.requests r
        where ${isOverdue(when)} order by ${r.tracked_at}`)} as overdue`)
  return one(rows, 'counting items that need attention')
}

function upTo(rows: SQL): SQL {
  return sql`(select count(*)::int from (select from ${rows} limit ${maxOnBadge}) as counted)`
}
