import { createNaturalBatch } from '../../platform/natural-batch.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type { StatusBody } from '../../wire/schemas.ts'
import type { Environment } from '../domain/schema.ts'
import * as schema from '../domain/schema.ts'
import { amend, createQueueView, placeOf, type QueueKey, type QueueView } from './queue-view.ts'

const requests = columnsOf(schema.requests)
const r = columnsOf(schema.requests, 'r')

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

/** The queues as this process last read them, and whether a read is running. */
export type QueueViews = Map<Environment, { view: QueueView; refreshing?: boolean }>

/**
 * Reads state, position and progress of requests (spec, Generation request) in one statement. Position 0 is served
 * next. The same statement walks the queue for positions. A long queue is walked at most every two seconds for all
 * callers, so its positions may be that old. States are always current.
 */
export async function readStatuses(
  db: Database,
  views: QueueViews,
  questions: readonly StatusQuestion[],
): Promise<(StatusBody | null)[]> {
  const answers: (StatusBody | null)[] = questions.map(() => null)
  const environments = [...new Set(questions.map(({ environment }) => environment))]
  const walked = environments.filter((environment) => ageOf(views, environment) >= 1)
  for (const environment of environments) if (!walked.includes(environment)) refreshInTime(db, views, environment)

  const { found, seen } = await read(db, questions, walked)
  for (const [environment, view] of seen) views.set(environment, { view })
  // Add all rows to the view before counting positions.
  for (const { environment, key, status } of found) {
    const view = views.get(environment)?.view
    if (view && key) amend(view, key, status === 'IN_QUEUE')
  }
  for (const { n, id, environment, key, status, progress, logs } of found) {
    const view = views.get(environment)?.view
    const place = view && key && status === 'IN_QUEUE' ? placeOf(view, key) : null
    answers[n - 1] = { request_id: id, status, queue_position: place, progress, logs }
  }
  return answers
}

/** The age of a view as a share of its greatest age. From 1 on, the view is too old. */
function ageOf(views: QueueViews, environment: Environment): number {
  const view = views.get(environment)?.view
  return view === undefined || view.maxAgeMs === 0 ? Infinity : (performance.now() - view.readAtMs) / view.maxAgeMs
}

/** Walks a long queue before its view is too old, so that no caller waits for it. */
function refreshInTime(db: Database, views: QueueViews, environment: Environment): void {
  const known = views.get(environment)
  // As a share of a view's greatest age. Early enough that the walk ends before the view is too old.
  if (known === undefined || known.refreshing || ageOf(views, environment) < 0.7) return
  known.refreshing = true
  read(db, [], [environment]).then(
    ({ seen }) => seen.forEach((view) => views.set(environment, { view })),
    // The next caller with an expired view walks the queue and gets the error.
    () => void (known.refreshing = false),
  )
}

type Found = RowOf<typeof schema.requests, 'id' | 'environment' | 'status' | 'progress' | 'logs' | 'turn' | 'seq'> & {
  n: number
}
type Walked = { n: null; environment: Environment; turns: number[]; seqs: number[] }

async function read(db: Database, questions: readonly StatusQuestion[], walked: readonly Environment[]) {
  const readAtMs = performance.now()
  const column = (pick: (question: StatusQuestion) => string) => sql.param(questions.map(pick))
  // The driver sends every text in a boolean[] as false, so `with_logs` is compared as text.
  const found: SQL = sql`
    select a.n::int, ${list(r, 'id', 'environment', 'status', 'progress')},
      case when a.with_logs = 'true' then ${r.logs} else '{}' end as logs,
      ${r.turn}, ${r.seq}, null::json as turns, null::json as seqs
    from unnest(
      ${column(({ requestId }) => requestId)}::uuid[], ${column(({ accountId }) => accountId)}::text[],
      ${column(({ environment }) => environment)}::text[], ${column(({ withLogs }) => String(withLogs))}::text[]
    ) with ordinality as a (id, account_id, environment, with_logs, n)
    join provider.requests r on ${r.id} = a.id and ${r.account_id} = a.account_id and ${r.environment} = a.environment`
  // One walk fills both lists: an aggregate takes its rows in their order.
  const queues: SQL = sql`
    select null, null, w.environment, null, null, null, null, null, array_to_json(queue.turns),
      array_to_json(queue.seqs)
    from unnest(${sql.param([...walked])}::text[]) as w (environment) cross join lateral (
      select coalesce(array_agg(q.turn), '{}') as turns, coalesce(array_agg(q.seq), '{}') as seqs from (
        select ${requests.turn}, ${requests.seq} from provider.requests where ${requests.status} = 'IN_QUEUE'
          and ${requests.environment} = w.environment
          order by ${requests.turn}, ${requests.seq}
      ) q
    ) queue`
  const rows = await db.execute<Found | Walked>(walked.length === 0 ? found : sql`${found} union all ${queues}`)

  const took = { readAtMs, tookMs: performance.now() - readAtMs }
  return {
    // A request that was never queued has no turn.
    found: rows.flatMap((row) =>
      row.n === null ? [] : [{ ...row, key: row.turn === null ? undefined : keyOf(row.turn, row.seq) }],
    ),
    seen: new Map(
      rows.flatMap((row) =>
        row.n === null ? [[row.environment, createQueueView(row.turns, row.seqs, took)] as const] : [],
      ),
    ),
  }
}

function keyOf(turn: string, seq: string): QueueKey {
  return { turn: Number(turn), seq: Number(seq) }
}
