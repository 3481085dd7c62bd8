import { createNaturalBatch } from '../../platform/natural-batch.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type { StatusBody } from '../../wire/schemas.ts'
import type { Environment, requests } from '../domain/schema.ts'

export type StatusQuestion = {
  /** A uuid. */
  requestId: string
  accountId: string
  environment: Environment
  withLogs: boolean
}

/** Resolves to null if this account and environment have no such request. */
export type StatusReader = (question: StatusQuestion) => Promise<StatusBody | null>

/** Reads statuses for all callers of this process. Concurrent calls share a statement. */
export function createStatusReader(db: Database): StatusReader {
  const views: QueueViews = new Map()
  return createNaturalBatch({ answerAll: (questions) => readStatuses(db, views, questions) })
}

/** The waiting requests of an environment as this process last read them, in serving order. */
type QueueView = { turns: number[]; seqs: number[]; isUsableUntilMs: number }
export type QueueViews = Map<Environment, QueueView>

type Found = RowOf<typeof requests, 'id' | 'environment' | 'status' | 'progress' | 'logs' | 'turn' | 'seq'> & {
  n: number
}
type Walked = { n: null; environment: Environment; turns: number[]; seqs: number[] }

/**
 * Reads state, position and progress of requests (spec, Generation request) in one statement. Position 0 is served
 * next. The same statement walks the queue for positions. A queue of up to 500 is walked by each statement. Positions
 * in a longer one are reused for two seconds, or for twenty times the duration of the statement if that is longer.
 * States are always current.
 */
export async function readStatuses(
  db: Database,
  views: QueueViews,
  questions: readonly StatusQuestion[],
): Promise<(StatusBody | null)[]> {
  const startedMs = performance.now()
  const environments = [...new Set(questions.map(({ environment }) => environment))]
  const walked = environments.filter((environment) => startedMs >= (views.get(environment)?.isUsableUntilMs ?? 0))
  const rows = await db.execute<Found | Walked>(statement(questions, walked))
  const usableMs = Math.max(2000, 20 * (performance.now() - startedMs))
  const found: Found[] = []
  for (const row of rows) {
    if (row.n !== null) found.push(row)
    else views.set(row.environment, { ...row, isUsableUntilMs: row.turns.length <= 500 ? 0 : startedMs + usableMs })
  }
  const answers: (StatusBody | null)[] = questions.map(() => null)
  for (const { n, id, environment, status, progress, logs, turn, seq } of found) {
    const view = views.get(environment)
    const place = view && turn !== null && status === 'IN_QUEUE' ? placeOf(view, Number(turn), Number(seq)) : null
    answers[n - 1] = { request_id: id, status, queue_position: place, progress, logs }
  }
  return answers
}

/** Counts the requests of the view that are served before this one: by turn, then by arrival. */
function placeOf({ turns, seqs }: QueueView, turn: number, seq: number): number {
  let low = 0
  let high = turns.length
  while (low < high) {
    const middle = (low + high) >>> 1
    const isBefore = turns[middle] === turn ? (seqs[middle] ?? 0) < seq : (turns[middle] ?? 0) < turn
    if (isBefore) low = middle + 1
    else high = middle
  }
  return low
}

function statement(questions: readonly StatusQuestion[], walked: readonly Environment[]): SQL {
  const column = (pick: (question: StatusQuestion) => string) => sql.param(questions.map(pick))
  // The driver sends every text in a boolean[] as false, so `with_logs` is compared as text.
  const found = sql`
    select a.n::int, r.id, r.environment, r.status, r.progress,
      case when a.with_logs = 'true' then r.logs else '{}' end as logs, r.turn, r.seq,
      null::json as turns, null::json as seqs
    from unnest(
      ${column(({ requestId }) => requestId)}::uuid[], ${column(({ accountId }) => accountId)}::text[],
      ${column(({ environment }) => environment)}::text[], ${column(({ withLogs }) => String(withLogs))}::text[]
    ) with ordinality as a (id, account_id, environment, with_logs, n)
    join provider.requests r on r.id = a.id and r.account_id = a.account_id and r.environment = a.environment`
  // One walk fills both lists: an aggregate takes its rows in their order.
  const queues = sql`
    select null, null, w.environment, null, null, null, null, null, array_to_json(queue.turns),
      array_to_json(queue.seqs)
    from unnest(${sql.param([...walked])}::text[]) as w (environment) cross join lateral (
      select coalesce(array_agg(q.turn), '{}') as turns, coalesce(array_agg(q.seq), '{}') as seqs from (
        select turn, seq from provider.requests where status = 'IN_QUEUE' and environment = w.environment
        order by turn, seq
      ) q
    ) queue`
  return walked.length === 0 ? found : sql`${found} union all ${queues}`
}
