import { z } from 'zod'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { and, desc, gte, lt, sql } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import * as onCall from '../domain/on-call-schema.ts'
import { readWithin } from './deadline.ts'
import { InvalidFilterError, times } from './filters.ts'
import { withIso } from './page.ts'

const c = columnsOf(arriving.arrivalCounts, 'c')
const minutes = columnsOf(onCall.minutes)

export const minutesFiltersSchema = z.strictObject(times)
export type MinutesFilters = z.infer<typeof minutesFiltersSchema>

const nullableNumber = z.number().nullable()

export const minutesSchema = z
  .object({
    since: z.iso.datetime(),
    until: z.iso.datetime(),
    step_minutes: z.int().describe('How many minutes one point covers. Longer ranges have longer steps.'),
    minutes: z.array(
      z.object({
        minute: z.iso.datetime(),
        arrivals: z.record(z.string(), z.int()).describe('Counts by `outcome` or `outcome/reason`.'),
        ack_p50_ms: nullableNumber,
        ack_p95_ms: nullableNumber,
        landing_p50_seconds: nullableNumber,
        landing_p95_seconds: nullableNumber,
        inbox_pending: nullableNumber.describe('The highest value seen.'),
      }),
    ),
    process_starts: z.array(
      z.object({ started_at: z.iso.datetime(), host: z.string(), pid: z.int(), version: z.string() }),
    ),
  })
  .meta({ id: 'Minutes' })
export type Minutes = z.infer<typeof minutesSchema>
export type MinutePoint = Minutes['minutes'][number]

const steps = [1, 5, 15, 30, 60]
const measures = ['ack_p50_ms', 'ack_p95_ms', 'landing_p50_seconds', 'landing_p95_seconds', 'inbox_pending'] as const

/** Reads the points of charts, by default of the last three hours. A minute without a running receiver has no point. */
export async function readMinutes(
  db: Database,
  { since, until, maxPoints = 1500 }: MinutesFilters & { maxPoints?: number },
  now: Date,
): Promise<Minutes> {
  const to = until === undefined ? now : new Date(until)
  const from = since === undefined ? new Date(to.getTime() - 180 * 60_000) : new Date(since)
  const wanted = (to.getTime() - from.getTime()) / 60_000
  if (wanted <= 0 && until === undefined)
    throw new InvalidFilterError('since', 'must not be in the future without until')
  if (wanted <= 0) throw new InvalidFilterError('until', 'must be later than since')
  if (wanted > 31 * 24 * 60) throw new InvalidFilterError('since', 'must not be more than 31 days before until')
  const step = steps.find((minutes) => wanted / minutes <= maxPoints) ?? 60
  return readWithin(db, async (tx) => {
    const rows = await readPoints(tx, { begin: from.toISOString(), end: to.toISOString(), step, now })
    const { started_at } = onCall.processStarts
    const starts = await tx
      .select()
      .from(onCall.processStarts)
      .where(and(gte(started_at, from.toISOString()), lt(started_at, to.toISOString())))
      .orderBy(desc(started_at))
      .limit(500)
    return {
      since: from.toISOString(),
      until: to.toISOString(),
      step_minutes: step,
      minutes: rows.map((row) => withIso(row, 'minute')),
      process_starts: starts.toReversed(),
    }
  })
}

type Points = { begin: string; end: string; step: number; now: Date }

async function readPoints(tx: Executor, { begin, end, step, now }: Points) {
  // Of measurements, the highest minute is taken.
  const worst = (column: (typeof measures)[number]) => sql`max(${minutes[column]}) as ${minutes[column]}`
  return tx.execute<RowOf<typeof onCall.minutes, keyof MinutePoint>>(sql`
    with wanted as (
      select * from mediadock.minutes
      where ${minutes.minute} >= ${begin}::timestamptz and ${minutes.minute} < ${end}::timestamptz
    ),
    -- A row of minutes is written about every 20 s; arrival_counts is current.
    counts as (
      select ${c.minute}, jsonb_object_agg(concat_ws('/', ${c.outcome}, nullif(${c.reason}, '')), ${c.arrivals}) as now
      from mediadock.arrival_counts c
      where ${c.minute} >= greatest(${begin}::timestamptz, ${now.toISOString()}::timestamptz - interval '2 minutes')
        and ${c.minute} < ${end}::timestamptz
      group by ${c.minute}
    ),
    chosen as (
      select date_bin(make_interval(mins => ${step}), minute, timestamptz 'epoch') as point,
        coalesce(counts.now, wanted.arrivals) as arrivals, ${list(minutes, ...measures)}
      from wanted full join counts using (minute)
    ),
    counted as (
      select point, jsonb_object_agg(what, n) as arrivals from (
        select point, what, sum(n::bigint) as n from chosen, jsonb_each_text(arrivals) as each (what, n)
        group by point, what) as sums
      group by point
    )
    select point as minute, coalesce(counted.arrivals, '{}') as arrivals,
      ${sql.join(measures.map(worst), sql`, `)}
    from chosen left join counted using (point) group by point, counted.arrivals order by point`)
}
