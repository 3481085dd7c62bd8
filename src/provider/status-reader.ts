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
}

/** Null where this account and environment have no such request. */
export type StatusReader = (question: StatusQuestion) => Promise<StatusBody | null>

const maxBatch = 500
/** One at a time: two half as large would walk the queue twice. */
const batchesUnderWay = 1
const walkFrom = 3

/** Reads statuses for all callers of this process, the ones that ask at the same time together. */
export function createStatusReader(db: Database): StatusReader {
  return createNaturalBatch({ answerAll: (questions) => readStatuses(db, questions), maxBatch, parallel: batchesUnderWay })
}

type Found = { n: number; id: string; status: RequestStatus; progress: number; logs: string[]; seq: string; environment: Environment }
/** The waiting requests of an environment in the order in which they will be served, as `{7,3,9}`. */
type Queue = { n: null; environment: Environment; queue: string }
type Placed = { n: number; id: string; status: RequestStatus; progress: number; logs: string[]; place: number | null }

/**
 * State, position and progress of requests (spec, Generation request), in one
 * statement and so of one moment. Position 0 is served next. One or two
 * requests have those before them counted; for more, one walk over the queue is cheaper.
 */
export async function readStatuses(db: Database, questions: readonly StatusQuestion[]): Promise<(StatusBody | null)[]> {
  const answers: (StatusBody | null)[] = questions.map(() => null)
  const placed = questions.length < walkFrom ? await countBefore(db, questions) : await walkQueues(db, questions)
  for (const { n, id, status, place, progress, logs } of placed) {
    answers[n - 1] = { request_id: id, status, queue_position: place, progress, logs }
  }
  return answers
}

async function countBefore(db: Database, questions: readonly StatusQuestion[]): Promise<Placed[]> {
  return db.execute<Placed>(sql`
    with ${found(questions)}
    select f.n, f.id, f.status, f.progress, f.logs, case when f.status = 'IN_QUEUE' then (
      select count(*)::int from provider.requests q
      where q.status = 'IN_QUEUE' and q.environment = f.environment and (q.turn, q.seq) < (f.turn, f.seq)
    ) end as place
    from found f`)
}

async function walkQueues(db: Database, questions: readonly StatusQuestion[]): Promise<Placed[]> {
  const rows = await db.execute<Found | Queue>(sql`
    with ${found(questions)}
    select n, id, status, progress, logs, seq, environment, null as queue from found
    union all
    select null, null, null, null, null, null, waiting.environment, queue.seqs
    from (select distinct environment from found where status = 'IN_QUEUE') waiting cross join lateral (
      select array_agg(q.seq order by q.turn, q.seq)::text as seqs from provider.requests q
      where q.status = 'IN_QUEUE' and q.environment = waiting.environment
    ) queue`)
  const asked = new Map(rows.flatMap((row) => (row.n !== null && row.status === 'IN_QUEUE' ? [[Number(row.seq), -1]] : [])))
  for (const row of rows) if (row.n === null) findPlaces(asked, row.queue)
  return rows.flatMap((row) => (row.n === null ? [] : [{ ...row, place: asked.get(Number(row.seq)) ?? null }]))
}

/** Reads the numbers digit by digit: splitting ten thousand of them into strings would cost more than the query. */
function findPlaces(asked: Map<number, number>, queue: string): void {
  let seq = 0
  let place = 0
  for (let at = 1; at < queue.length; at += 1) {
    const digit = queue.charCodeAt(at) - zero
    if (digit >= 0 && digit <= 9) {
      seq = seq * 10 + digit
      continue
    }
    if (asked.has(seq)) asked.set(seq, place)
    seq = 0
    place += 1
  }
}

const zero = '0'.charCodeAt(0)

function found(questions: readonly StatusQuestion[]): SQL {
  const column = (pick: (question: StatusQuestion) => string) => sql.param(questions.map(pick))
  return sql`
    asked as (
      select * from unnest(
        ${column(({ requestId }) => requestId)}::uuid[], ${column(({ accountId }) => accountId)}::text[],
        ${column(({ environment }) => environment)}::text[], ${column(({ withLogs }) => String(withLogs))}::boolean[]
      ) with ordinality as a (id, account_id, environment, with_logs, n)
    ), found as materialized (
      select a.n::int, r.id, r.environment, r.status, r.progress, r.turn, r.seq,
        case when a.with_logs then r.logs else '{}' end as logs
      from asked a join provider.requests r on r.id = a.id and r.account_id = a.account_id and r.environment = a.environment
    )`
}
