import { sql, type SQL } from 'drizzle-orm'
import type { Database } from '../runtime/postgres.ts'
import type { RequestStatus, StatusBody } from '../wire/schemas.ts'
import { createNaturalBatch } from './natural-batch.ts'
import type { Environment } from './schema.ts'

export type StatusQuestion = {
  /** A uuid. */
  requestId: string
  accountId: string
  environment: Environment
  withLogs: boolean
  /** Keeps the position with this Idempotency-Key, as what submit answers. */
  rememberFor?: string | undefined
}

/** Null where this account and environment have no such request. */
export type StatusReader = (question: StatusQuestion) => Promise<StatusBody | null>

const maxBatch = 500
const batchesUnderWay = 2
/** From here on one walk over the queue is cheaper than counting for each request. */
const walkFrom = 4

/** Reads statuses for all callers of this process, the ones that ask at the same time together. */
export function createStatusReader(db: Database): StatusReader {
  return createNaturalBatch({ answerAll: (questions) => readStatuses(db, questions), maxBatch, parallel: batchesUnderWay })
}

type Row = { id: string; status: RequestStatus; place: number | null; progress: number; logs: string[] }

/**
 * State, position and progress of requests (spec, Generation request). The
 * position is counted in the order in which requests will be served: 0 is next.
 */
export async function readStatuses(db: Database, questions: readonly StatusQuestion[]): Promise<(StatusBody | null)[]> {
  const column = <T>(pick: (question: StatusQuestion) => T) => sql.param(questions.map(pick))
  const remembers = questions.some(({ rememberFor }) => rememberFor !== undefined)
  const rows = await db.execute<Row & { n: number }>(sql`
    with asked as (
      select * from unnest(
        ${column(({ requestId }) => requestId)}::uuid[], ${column(({ accountId }) => accountId)}::text[],
        ${column(({ environment }) => environment)}::text[], ${column(({ withLogs }) => String(withLogs))}::boolean[],
        ${column(({ rememberFor }) => rememberFor ?? null)}::uuid[]
      ) with ordinality as a (id, account_id, environment, with_logs, key, n)
    ), found as materialized (
      select a.n, a.key, r.id, r.account_id, r.environment, r.status, r.progress, r.turn, r.seq,
        case when a.with_logs then r.logs else '{}' end as logs
      from asked a join provider.requests r on r.id = a.id and r.account_id = a.account_id and r.environment = a.environment
    ), placed as materialized (${questions.length < walkFrom ? countEach : walkQueue}
    )${remembers ? sql`, remembered as (
      update provider.idempotency_keys k set submitted_position = coalesce(p.place, 0) from placed p
      where k.account_id = p.account_id and k.environment = p.environment and k.key = p.key and k.request_id = p.id
    )` : sql``}
    select n::int, id, status, place, progress, logs from placed`)
  const answers: (StatusBody | null)[] = questions.map(() => null)
  for (const { n, id, status, place, progress, logs } of rows) {
    answers[n - 1] = { request_id: id, status, queue_position: place, progress, logs }
  }
  return answers
}

const countEach: SQL = sql`
  select f.*, case when f.status = 'IN_QUEUE' then (
    select count(*)::int from provider.requests q
    where q.status = 'IN_QUEUE' and q.environment = f.environment and (q.turn, q.seq) < (f.turn, f.seq)
  ) end as place from found f`

const walkQueue: SQL = sql`
  select f.*, walk.place from found f left join (
    select seq, (row_number() over (partition by environment order by turn, seq) - 1)::int as place
    from provider.requests
    where status = 'IN_QUEUE' and environment in (select environment from found where status = 'IN_QUEUE')
  ) walk on walk.seq = f.seq and f.status = 'IN_QUEUE'`
