import { createNaturalBatch } from '../../platform/natural-batch.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { StatusBody } from '../../wire/schemas.ts'
import type { Environment } from '../domain/schema.ts'
import * as schema from '../domain/schema.ts'

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
  return createNaturalBatch({ answerAll: (questions) => readStatuses(db, questions) })
}

/**
 * The part of a queue that is walked for positions: a few milliseconds. Later requests have this position. At half,
 * more of them have no position of their own; at double, a statement takes twice as long.
 */
export const walkedRequests = 10_000

/**
 * Reads state, position and progress of requests (spec, Generation request) in one statement. Position 0 is served
 * next.
 */
export async function readStatuses(db: Database, questions: readonly StatusQuestion[]): Promise<(StatusBody | null)[]> {
  const column = (pick: (question: StatusQuestion) => string) => sql.param(questions.map(pick))
  // The driver sends every text in a boolean[] as false, so `with_logs` is compared as text.
  const rows = await db.execute<StatusBody & { n: number }>(sql`
    with found as (
      select a.n::int, ${list(r, 'id', 'environment', 'status', 'progress', 'seq')},
        case when a.with_logs = 'true' then ${r.logs} else '{}' end as logs
      from unnest(
        ${column(({ requestId }) => requestId)}::uuid[], ${column(({ accountId }) => accountId)}::text[],
        ${column(({ environment }) => environment)}::text[], ${column(({ withLogs }) => String(withLogs))}::text[]
      ) with ordinality as a (id, account_id, environment, with_logs, n)
      join provider.requests r on ${r.id} = a.id and ${r.account_id} = a.account_id and ${r.environment} = a.environment
    ), places as (
      select queue.seq, queue.place
      from (select distinct environment from found where status = 'IN_QUEUE') asked cross join lateral (
        select ${requests.seq}, row_number() over (order by ${requests.turn}, ${requests.seq}) - 1 as place
        from provider.requests where ${requests.status} = 'IN_QUEUE' and ${requests.environment} = asked.environment
        order by ${requests.turn}, ${requests.seq} limit ${walkedRequests}::int
      ) queue
    )
    select n, id as request_id, status, progress, logs,
      case when status = 'IN_QUEUE' then coalesce(place, ${walkedRequests}::int)::int end as queue_position
    from found left join places using (seq)`)
  const answers: (StatusBody | null)[] = questions.map(() => null)
  for (const { n, ...status } of rows) answers[n - 1] = status
  return answers
}
