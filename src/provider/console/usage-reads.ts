import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type { Environment } from '../domain/schema.ts'
import * as schema from '../domain/schema.ts'
import { rowsShown } from './newest-first.ts'

const r = columnsOf(schema.requests, 'r')

/** The last 30 days (UTC) or 24 hours, the current one included. */
export const spans = { day: { steps: 30, ms: 86_400_000 }, hour: { steps: 24, ms: 3_600_000 } } as const
export type Span = keyof typeof spans

/**
 * The requests that one page reads (docs/provider.md). At double, the page of a busy provider takes twice as long; at
 * half, the 30 days that it shows begin later.
 */
export const usageRows = 200_000
/** A CSV file is built in memory. At double, a few downloads at once would matter; at half, more files are cut. */
const csvRows = 10_000

export type UsageFilter = {
  span: Span
  account?: string | undefined
  model?: string | undefined
  environment?: Environment | undefined
  now: Date
  /** Replaces usageRows. */
  lookAt?: number
}

/** Requests by outcome, counted at the time of their submit. Credits are those of completed requests of live keys. */
export type UsageCounts = { requests: number; completed: number; failed: number; canceled: number; credits: string }
export type UsageAt = UsageCounts & { from: string }
export type UsageOf = UsageCounts & { name: string }

export type Usage = {
  /** Every step of the span, or from `completeFrom` on. Steps without a request are included. */
  steps: UsageAt[]
  models: UsageOf[]
  /** The accounts with the most requests. */
  accounts: UsageOf[]
  /** The first complete step, if the page could not read all requests. */
  completeFrom: string | undefined
}

export type UsageLine = UsageCounts &
  RowOf<typeof schema.requests, 'model' | 'environment'> & { from: string; account: string }

const counts = sql`sum(n)::int as requests, coalesce(sum(n) filter (where status = 'COMPLETED'), 0)::int as completed,
  coalesce(sum(n) filter (where status = 'FAILED'), 0)::int as failed,
  coalesce(sum(n) filter (where status = 'CANCELED'), 0)::int as canceled,
  coalesce(trim_scale(sum(cost) filter (where status = 'COMPLETED' and environment = 'live')), 0)::text as credits`

type StepRow = UsageCounts & { start: string }

type FoundUsage = {
  steps: StepRow[] | null
  models: UsageOf[] | null
  accounts: UsageOf[] | null
  complete_from: string | null
}

/** The usage over time, by model and by account. */
export async function readUsage(db: Database, filter: UsageFilter): Promise<Usage> {
  const rows = await db.execute<FoundUsage>(sql`
    with ${keptOf(filter)}
    select (select jsonb_agg(s order by s.start) from (select start, ${counts} from kept group by start) s) as steps,
      (select jsonb_agg(m order by m.requests desc, m.name) from (
        select model as name, ${counts} from kept group by model
      ) m) as models,
      (select jsonb_agg(a order by a.requests desc, a.name) from (
        select account_id as name, ${counts} from kept group by account_id
          order by requests desc, account_id limit ${rowsShown}::int
      ) a) as accounts,
      (select start from edge) as complete_from`)
  const found = one(rows, 'reading usage')
  const byStart = new Map((found.steps ?? []).map(({ start, ...of }) => [iso(start), of]))
  const completeFrom = found.complete_from === null ? undefined : iso(found.complete_from)
  const none = { requests: 0, completed: 0, failed: 0, canceled: 0, credits: '0' }
  const steps = stepsOf(filter).filter((from) => completeFrom === undefined || from >= completeFrom)
  return {
    steps: steps.map((from) => ({ from, ...(byStart.get(from) ?? none) })),
    models: found.models ?? [],
    accounts: found.accounts ?? [],
    completeFrom,
  }
}

/**
 * Reads the lines of a CSV file, one for each step, account, model and environment, the latest days or hours first, up
 * to its limit of lines. `isWhole`: the lines cover all requests of the span.
 */
export async function readUsageLines(db: Database, filter: UsageFilter) {
  type Lines = { lines: (Omit<UsageLine, 'from'> & { start: string })[] | null; complete_from: string | null }
  const rows = await db.execute<Lines>(sql`
    with ${keptOf(filter)}
    select (select jsonb_agg(l order by l.start desc, l.account, l.model, l.environment) from (
        select start, account_id as account, model, environment, ${counts} from kept
        group by start, account_id, model, environment
          order by start desc, account_id, model, environment limit ${csvRows + 1}::int
      ) l) as lines, (select start from edge) as complete_from`)
  const { lines, complete_from: completeFrom } = one(rows, 'reading lines of usage')
  const all = (lines ?? []).map(({ start, ...line }) => ({ from: iso(start), ...line }))
  return { lines: all.slice(0, csvRows), isWhole: completeFrom === null && all.length <= csvRows }
}

/**
 * SQL: the counts of the filter, as `kept`, from the latest requests of the span. `edge` is the start of the first day
 * or hour of which all requests were read, or null if the whole span was. Earlier ones would show too few and are left
 * out. Without `nulls last`, Postgres would not use the index.
 */
function keptOf(filter: UsageFilter): SQL {
  const { span, account, model, environment, lookAt = usageRows } = filter
  return sql`seen as materialized (
      select ${list(r, 'account_id', 'created_at', 'model', 'environment', 'status', 'cost')}
      from provider.requests r
      where ${r.created_at} >= ${stepsOf(filter)[0]}::timestamptz
        ${account === undefined ? sql`` : sql`and ${r.account_id} = ${account}`}
      order by ${r.created_at} desc nulls last, ${r.id} desc nulls last limit ${lookAt + 1}::int
    ), edge as (
      select case when count(*) > ${lookAt}::int
        then ${startOf(filter, sql`min(created_at)`)} + ${`1 ${span}`}::interval end as start from seen
    ), kept as (
      select account_id, ${startOf(filter, sql`created_at`)} as start, model, environment, status, count(*) as n,
        sum(cost) as cost
      from seen cross join edge where (edge.start is null or created_at >= edge.start)
        ${model === undefined ? sql`` : sql`and model = ${model}`} ${environment === undefined ? sql`` : sql`and environment = ${environment}`}
      group by 1, 2, 3, 4, 5
    )`
}

/** Converts Postgres's text of an instant to ISO 8601. */
function iso(instant: string): string {
  return new Date(instant).toISOString()
}

function startOf({ span }: UsageFilter, at: SQL): SQL {
  return sql`date_trunc(${span}, ${at}, 'UTC')`
}

function stepsOf({ span, now }: UsageFilter): string[] {
  const { steps, ms } = spans[span]
  const current = Math.floor(now.getTime() / ms) * ms
  return Array.from({ length: steps }, (_, at) => new Date(current - (steps - 1 - at) * ms).toISOString())
}
