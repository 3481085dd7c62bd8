import os from 'node:os'
import { desc, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { version } from '../../platform/release.ts'
import * as onCall from '../domain/on-call-schema.ts'
import { inboxDepth } from '../gauges/inbox-depth.ts'
import { countOverdue } from '../gauges/overdue.ts'

/** A pending delivery of this age is a problem. A row that was locked for a moment lands sooner: a retry takes 15 s. */
export const oldSeconds = 60

/** A minute is final once it was written this long after its end: the logs have caught up by then. */
export const finalAfterSeconds = 15
/** Percentiles come from this many newest rows, so that a busy minute costs no more. */
const sampledRows = 1000

/** Writes the figures of this minute and of the last one. Any number of replicas may run it at once. */
export async function writeMinutes(
  db: Database,
  { now, stuckAfterSeconds }: { now: Date; stuckAfterSeconds: number },
): Promise<void> {
  const { pending, oldestSeconds } = await inboxDepth(db, now)
  const overdue = await countOverdue(db, { now, stuckAfterSeconds })
  const at = sql`${now.toISOString()}::timestamptz`
  const current = sql`${new Date(Math.floor(now.getTime() / 60_000) * 60_000).toISOString()}::timestamptz`
  const inMinute = (column: SQL) => sql`${column} >= due.minute and ${column} < due.minute + interval '1 minute'`
  // Skips a minute that another replica has just written. Keeps arrival_counts for an hour: the first page uses the
  // last five minutes.
  await db.execute(sql`
    with due as (
      select minute from (values (${current}), (${current} - interval '1 minute')) as m (minute)
      where not exists (
        select from mediadock.minutes w where w.minute = m.minute
          and w.written_at >= least(m.minute + make_interval(secs => 60 + ${finalAfterSeconds}),
            ${at} - make_interval(secs => 10)))
    ),
    forgotten as (
      delete from mediadock.arrival_counts c where c.minute < ${at} - make_interval(secs => 3600)
    )
    insert into mediadock.minutes as m (minute, written_at, arrivals, ack_p50_ms, ack_p95_ms, landed,
      landing_p50_seconds, landing_p95_seconds, inbox_pending, inbox_oldest_seconds, overdue)
    select due.minute, ${at}, came.arrivals, acked.ms[1], acked.ms[2], landed.n, landed.took[1], landed.took[2],
      case when due.minute = ${current} then ${pending}::int end,
      case when due.minute = ${current} then ${oldestSeconds}::real end,
      case when due.minute = ${current} then ${overdue}::int end
    from due
    cross join lateral (
      select coalesce(jsonb_object_agg(concat_ws('/', c.outcome, nullif(c.reason, '')), c.arrivals), '{}') as arrivals
      from mediadock.arrival_counts c where c.minute = due.minute
    ) as came
    cross join lateral (
      select percentile_cont(array[0.5, 0.95]) within group (order by ack_ms) as ms from (
        select a.ack_ms from mediadock.arrivals a
        where ${inMinute(sql`a.arrived_at`)} and a.status = 200
        order by a.arrived_at desc, a.id desc limit ${sampledRows}
      ) as s
    ) as acked
    cross join lateral (
      select (select count(*) from mediadock.requests r where ${inMinute(sql`r.landed_at`)}) as n,
        percentile_cont(array[0.5, 0.95]) within group (
          order by extract(epoch from s.landed_at - first.received_at)::real) as took
      from (
        select r.request_id, r.landed_at from mediadock.requests r
        where ${inMinute(sql`r.landed_at`)} and r.source = 'webhook'
        order by r.landed_at desc nulls last limit ${sampledRows}
      ) as s
      -- Not min(received_at), for which the planner would scan all deliveries by time.
      cross join lateral (
        select (array_agg(d.received_at order by d.received_at))[1] as received_at
        from mediadock.deliveries d where d.request_id = s.request_id
      ) as first
    ) as landed
    order by due.minute
    on conflict (minute) do update set written_at = excluded.written_at, arrivals = excluded.arrivals,
      ack_p50_ms = excluded.ack_p50_ms, ack_p95_ms = excluded.ack_p95_ms, landed = excluded.landed,
      landing_p50_seconds = excluded.landing_p50_seconds, landing_p95_seconds = excluded.landing_p95_seconds,
      inbox_pending = greatest(m.inbox_pending, excluded.inbox_pending),
      inbox_oldest_seconds = greatest(m.inbox_oldest_seconds, excluded.inbox_oldest_seconds),
      overdue = greatest(m.overdue, excluded.overdue)`)
}

/** Returns when a receiver last wrote figures; a running one does so about every 20 s. Undefined without figures. */
export async function lastMinuteWrittenAt(db: Database): Promise<Date | undefined> {
  const { written_at, minute } = onCall.minutes
  const [last] = await db.select({ written_at }).from(onCall.minutes).orderBy(desc(minute)).limit(1)
  return last && new Date(last.written_at)
}

/** Records this start for the charts. */
export async function noteStart(db: Database, now: Date): Promise<void> {
  const start = { started_at: now.toISOString(), host: os.hostname(), pid: process.pid, version }
  await db.insert(onCall.processStarts).values(start).onConflictDoNothing()
}
