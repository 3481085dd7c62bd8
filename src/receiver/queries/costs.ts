import { z } from 'zod'
import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { later } from '../../platform/postgres/time.ts'
import type { MonthSpending, Spending } from '../accounts/balances.ts'
import { callBudgets } from '../domain/budgets-schema.ts'
import { sandboxOf } from '../domain/environment.ts'
import { generations } from '../domain/generations-schema.ts'
import { maxNameCharacters } from '../domain/limits.ts'
import { r } from './aliases.ts'
import { readWithin, QueryTimeoutError } from './deadline.ts'
import { times } from './filters.ts'

const g = columnsOf(generations, 'g')

/** The groups in one answer: more than the days of a year. `others` sums the rest. */
const maxGroups = 500

export const costFiltersSchema = z.strictObject({
  by: z
    .string()
    .regex(/^(?:model|key_name|day|metadata\.[\w-]{1,64})$/, 'must be model, key_name, day or metadata.<name>')
    .describe('`model`, `key_name`, `day` (UTC, of tracking) or `metadata.<name>`.'),
  ...times,
})

const sums = {
  requests: z.int(),
  credits_settled: z.number().describe('Credits of requests that have ended.'),
  credits_reserved: z.number().describe('Credits of requests that have not ended, as stated at submit.'),
}
export const costsSchema = z
  .object({
    by: z.string(),
    data: z
      .array(
        z.object({
          group: z
            .string()
            .nullable()
            .describe(`Values of the metadata are cut at ${maxNameCharacters} characters before they are summed.`),
          ...sums,
        }),
      )
      .describe('The most expensive first.'),
    others: z.object(sums).describe(`The sums of groups beyond the first ${maxGroups}.`),
    total: z.object(sums),
  })
  .meta({ id: 'Costs' })
export type Costs = z.infer<typeof costsSchema>

/** `place` is null for the sum of all. */
type Row = { grouping: string | null; place: number | null; requests: string; settled: string; reserved: string }

/**
 * Sums the credits of live requests that were tracked from `since` on and before `until`. The cost comes from the
 * result, or before that from the submit's answer. The sandbox charges nothing (spec, What the service does). Sources
 * other than the default one do not state credits.
 */
export async function readCosts(db: Database, { by, since, until }: z.infer<typeof costFiltersSchema>): Promise<Costs> {
  const rows = await readWithin(db, (tx) =>
    tx.execute<Row>(sql`
      with costs as (
        select ${groupOf(by)} as grouping, ${r.landed_at} is not null as has_ended,
          coalesce(${r.cost}, ${g.cost}, 0) as credits
        from mediadock.requests r left join mediadock.generations g on ${g.idempotency_key} = ${r.idempotency_key}
        where ${sandboxOf('r')} is distinct from true and ${r.source_name} is null
          and ${r.tracked_at} >= ${since ?? '-infinity'}::timestamptz
          and ${r.tracked_at} < ${until ?? 'infinity'}::timestamptz
      ),
      summed as (
        select grouping, count(*) as requests, coalesce(sum(credits) filter (where has_ended), 0) as settled,
          coalesce(sum(credits) filter (where not has_ended), 0) as reserved, sum(credits) as credits
        from costs group by grouping
      ),
      placed as (
        select *, least(row_number() over (order by credits desc, grouping), ${maxGroups + 1}::int)::int as place
        from summed
      )
      select min(grouping) as grouping, place,
        sum(requests) as requests, sum(settled) as settled, sum(reserved) as reserved
      from placed group by grouping sets ((place), ()) order by place`),
  )
  const sumsAt = (place: number | null) => toSums(rows.find((row) => row.place === place))
  const shown = rows.filter(({ place }) => place !== null && place <= maxGroups)
  return {
    by,
    data: shown.map((row) => ({ group: row.grouping, ...toSums(row) })),
    others: sumsAt(maxGroups + 1),
    total: sumsAt(null),
  }
}

function groupOf(by: string): SQL {
  switch (by) {
    case 'model':
      return sql`${r.model}`
    case 'key_name':
      return sql`${r.key_name}`
    case 'day':
      return sql`to_char(${r.tracked_at} at time zone 'UTC', 'YYYY-MM-DD')`
    default:
      return sql`left(${r.metadata} ->> ${by.slice('metadata.'.length)}, ${maxNameCharacters}::int)`
  }
}

/** Missing sums are 0. */
function toSums(row?: Row): Costs['total'] {
  return {
    requests: Number(row?.requests ?? 0),
    credits_settled: Number(row?.settled ?? 0),
    credits_reserved: Number(row?.reserved ?? 0),
  }
}

const b = columnsOf(callBudgets, 'b')

/**
 * Reads what requests of the account of this key have cost. The month is undefined if summing it takes too long.
 */
export async function readSpending(db: Database, keyName: string, now: SQL): Promise<Spending> {
  const rows = await readWithin(db, (tx) =>
    tx.execute<{ spent: number }>(sql`
      select coalesce(sum(credits), 0)::float8 as spent from (${requestsSince(keyName, later(now, -3600))}) as own`),
  )
  const { spent: lastHour } = one(rows, 'summing the cost of the last hour')
  try {
    return { lastHour, month: await readWithin(db, (tx) => readMonth(tx, keyName, now)) }
  } catch (error) {
    if (error instanceof QueryTimeoutError) return { lastHour, month: undefined }
    throw error
  }
}

/** The provider counts a request when it ended: for this receiver, at some time between tracking and landing. */
async function readMonth(tx: Executor, keyName: string, now: SQL): Promise<MonthSpending> {
  const from = later(now, -30 * 86_400)
  const rows = await tx.execute<MonthSpending>(sql`
    select coalesce(sum(cost) filter (where landed_at is not null and tracked_at >= ${from}), 0)::float8 as least,
      case when not coalesce(bool_or(credits is null and tracked_at >= ${later(now, -86_400)}), false)
        then coalesce(sum(credits) filter (where coalesce(landed_at >= ${from}, true)), 0)::float8 end as most,
      (count(*) filter (where tracked_at >= ${from}))::int as requests,
      coalesce(bool_or(tracked_at < ${from}), false) as covers
    from (${requestsSince(keyName, later(now, -31 * 86_400))}) as own`)
  return one(rows, 'summing the cost of 30 days')
}

/** The live requests of the account of this key that were tracked since then. */
function requestsSince(keyName: string, since: SQL): SQL {
  return sql`
    select ${r.tracked_at}, ${r.landed_at}, ${r.cost}, coalesce(${r.cost}, ${g.cost}) as credits
    from mediadock.requests r left join mediadock.generations g on ${g.idempotency_key} = ${r.idempotency_key}
    where ${r.tracked_at} >= ${since} and ${sandboxOf('r')} is distinct from true and ${r.key_name} in (
      select ${b.key_name} from mediadock.call_budgets b where ${b.key_name} = ${keyName}
        or ${b.account_id} = (select account_id from mediadock.call_budgets where key_name = ${keyName}))`
}
