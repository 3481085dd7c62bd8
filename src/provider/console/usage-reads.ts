import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { iso } from '../accounts/keys.ts'
import type { Environment } from '../domain/schema.ts'
import * as schema from '../domain/schema.ts'

const accounts = columnsOf(schema.accounts)
const requests = columnsOf(schema.requests)

/** The last 30 days (UTC) or 24 hours, the current one included. */
export const spans = { day: { steps: 30, ms: 86_400_000 }, hour: { steps: 24, ms: 3_600_000 } } as const
export type Span = keyof typeof spans

/** Requests that one page reads, over all accounts. */
export const lookedAtForUsage = 200_000
export const accountsInUsage = 50
const linesShown = 10_000

export type UsageFilter = {
  span: Span
  account?: string | undefined
  model?: string | undefined
  environment?: Environment | undefined
  now: Date
  /** Replaces lookedAtForUsage. */
  lookAt?: number
}

/** Requests by outcome, counted at the time of their submit. Credits are those of completed requests of live keys. */
export type UsageCounts = { requests: number; completed: number; failed: number; canceled: number; credits: string }
export type UsageAt = UsageCounts & { from: string }
export type UsageOf = UsageCounts & { name: string }

export type Usage = {
  /** Every step of the span, steps without a request included. */
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
  seen: number
}

/** The usage over time, by model and by account. */
export async function readUsage(db: Database, filter: UsageFilter): Promise<Usage> {
  const read = async (kept: SQL) => {
    const rows = await db.execute<FoundUsage>(sql`
    with ${kept}
    select (select jsonb_agg(s order by s.start) from (select start, ${counts} from kept group by start) s) as steps,
      (select jsonb_agg(m order by m.requests desc, m.name) from (
        select model as name, ${counts} from kept group by model
      ) m) as models,
      (select jsonb_agg(a order by a.requests desc, a.name) from (
        select account_id as name, ${counts} from kept group by account_id
          order by requests desc, account_id limit ${accountsInUsage}::int
      ) a) as accounts,
      (select start from edge) as complete_from, (select coalesce(sum(n), 0)::int from seen) as seen`)
    return one(rows, 'reading usage')
  }
  const found = await readAllOrLatest(db, filter, read)
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

/** One line for each step, account, model and environment. `isWhole`: the lines cover all requests of the span. */
type UsageLines = { lines: UsageLine[]; isWhole: boolean }

/** Reads the lines of a CSV file, the latest days or hours first, up to its limit of lines. */
export async function readUsageLines(db: Database, filter: UsageFilter): Promise<UsageLines> {
  const read = async (kept: SQL) => {
    type Lines = {
      lines: (Omit<UsageLine, 'from'> & { start: string })[] | null
      complete_from: string | null
      seen: number
    }
    const rows = await db.execute<Lines>(sql`
    with ${kept}
    select (select jsonb_agg(l order by l.start desc, l.account, l.model, l.environment) from (
        select start, account_id as account, model, environment, ${counts} from kept
        group by start, account_id, model, environment
          order by start desc, account_id, model, environment limit ${linesShown + 1}::int
      ) l) as lines, (select start from edge) as complete_from, (select coalesce(sum(n), 0)::int from seen) as seen`)
    return one(rows, 'reading lines of usage')
  }
  const { lines, complete_from: completeFrom } = await readAllOrLatest(db, filter, read)
  const all = (lines ?? []).map(({ start, ...line }) => ({ from: iso(start), ...line }))
  return { lines: all.slice(0, linesShown), isWhole: completeFrom === null && all.length <= linesShown }
}

/** Reads all requests of the span, or the latest of each account if there are too many. */
async function readAllOrLatest<T extends { seen: number }>(
  db: Database,
  filter: UsageFilter,
  read: (kept: SQL) => Promise<T>,
): Promise<T> {
  const found = await read(allKept(filter))
  if (found.seen <= (filter.lookAt ?? lookedAtForUsage)) return found
  return read(latestKept(filter, await shareOf(db, filter)))
}

/** The number of requests to read of each account. */
async function shareOf(db: Database, filter: UsageFilter): Promise<number> {
  const counted = await db.execute<{ n: number }>(sql`select count(*)::int as n from ${accountsOf(filter)}`)
  return Math.max(1, Math.floor((filter.lookAt ?? lookedAtForUsage) / Math.max(1, one(counted, 'counting accounts').n)))
}

function accountsOf({ account }: UsageFilter): SQL {
  return sql`(select ${accounts.id}
    from provider.accounts ${account === undefined ? sql`` : sql`where ${accounts.id} = ${account}`}) a`
}

/** The latest requests of the account `a`. Without `nulls last`, Postgres would not use the index. */
function latest(filter: UsageFilter, limit: number): SQL {
  return sql`
    select ${list(requests, 'account_id', 'created_at', 'model', 'environment', 'status', 'cost')}
      from provider.requests
    where ${requests.account_id} = a.id and ${requests.created_at} >= ${stepsOf(filter)[0]}::timestamptz
    order by ${requests.created_at} desc nulls last, ${requests.id} desc nulls last limit ${limit}::int`
}

/**
 * The counts of the filter, as `kept`, from all requests of the span. Reads one request beyond the limit, to notice
 * that there are more.
 */
function allKept(filter: UsageFilter): SQL {
  const limit = (filter.lookAt ?? lookedAtForUsage) + 1
  return sql`seen as materialized (
      select ${grouped(filter)} from (
        select l.* from ${accountsOf(filter)} cross join lateral (${latest(filter, limit)}) l limit ${limit}::int
      ) l group by 1, 2, 3, 4, 5
    ), edge as (select null::timestamptz as start), ${keptOf(filter)}`
}

/**
 * SQL: the same sums from the latest `depth` requests of each account. `edge` is the start of the first day or hour of
 * which all requests were read. Earlier ones would show too few and are left out.
 */
function latestKept(filter: UsageFilter, depth: number): SQL {
  return sql`seen as materialized (
      select g.* from ${accountsOf(filter)} cross join lateral (
        select ${grouped(filter)} from (${latest(filter, depth)}) l group by 1, 2, 3, 4, 5
      ) g
    ), edge as (
      select ${startOf(filter, sql`max(oldest)`)} + ${filter.span === 'day' ? sql`interval '1 day'` : sql`interval '1 hour'`} as start
      from (select min(oldest) as oldest from seen group by account_id having sum(n) >= ${depth}::int) cut
    ), ${keptOf(filter)}`
}

function grouped(filter: UsageFilter): SQL {
  return sql`l.account_id, ${startOf(filter, sql`l.created_at`)} as start, l.model, l.environment, l.status,
    count(*) as n, sum(l.cost) as cost, min(l.created_at) as oldest`
}

function keptOf({ model, environment }: UsageFilter): SQL {
  return sql`kept as (
      select seen.* from seen cross join edge where (edge.start is null or seen.start >= edge.start)
        ${model === undefined ? sql`` : sql`and seen.model = ${model}`} ${environment === undefined ? sql`` : sql`and seen.environment = ${environment}`}
    )`
}

function startOf({ span }: UsageFilter, at: SQL): SQL {
  return sql`date_trunc(${span}, ${at}, 'UTC')`
}

function stepsOf({ span, now }: UsageFilter): string[] {
  const { steps, ms } = spans[span]
  const current = Math.floor(now.getTime() / ms) * ms
  return Array.from({ length: steps }, (_, at) => new Date(current - (steps - 1 - at) * ms).toISOString())
}
