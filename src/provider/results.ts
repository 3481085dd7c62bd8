import { sql } from 'drizzle-orm'
import { HttpError } from '../runtime/http.ts'
import type { Database } from '../runtime/postgres.ts'
import { requestIdSchema, type Output, type RequestStatus, type Result, type StatusBody } from '../wire/schemas.ts'
import type { Caller } from './auth.ts'
import { iso } from './keys.ts'

type StatusRow = { id: string; status: RequestStatus; position: number | null; progress: number; logs: string[] }

type ResultRow = StatusRow & {
  model: string
  output: Output | null
  cost: string
  error_code: string | null
  error_message: string | null
  created_at: string
  completed_at: string | null
}

export type Lookup = { requestId: string; withLogs: boolean }

/** The position is counted in the order in which requests will be served: 0 is next. */
const statusColumns = (withLogs: boolean) => sql`
  r.id, r.status, r.progress, ${withLogs ? sql`r.logs` : sql`'{}'::text[]`} as logs,
  case when r.status = 'IN_QUEUE' then (
    select count(*)::int from provider.requests q
    where q.status = 'IN_QUEUE' and q.environment = r.environment and (q.turn, q.seq) < (r.turn, r.seq)
  ) end as position`

/** `GET /v1/requests/{request_id}/status` (spec, Endpoints). */
export async function readStatus(db: Database, caller: Caller, lookup: Lookup): Promise<StatusBody> {
  const [row] = await db.execute<StatusRow>(sql`
    select ${statusColumns(lookup.withLogs)} from provider.requests r where ${visible(caller, lookup)}`)
  if (row === undefined) throw unknownRequest(lookup.requestId)
  return statusBody(row)
}

export type ResultAnswer = { kind: 'terminal'; body: Result } | { kind: 'running'; body: StatusBody }

/** `GET /v1/requests/{request_id}`: 200 once terminal, until then 202 with the status (spec, result). */
export async function readResult(db: Database, caller: Caller, lookup: Lookup): Promise<ResultAnswer> {
  const [row] = await db.execute<ResultRow>(sql`
    select ${statusColumns(lookup.withLogs)}, r.model, r.output, r.cost, r.error_code, r.error_message, r.created_at, r.completed_at
    from provider.requests r where ${visible(caller, lookup)}`)
  if (row === undefined) throw unknownRequest(lookup.requestId)
  const common = { request_id: row.id, model: row.model, ...times(row) }
  switch (row.status) {
    case 'COMPLETED':
      if (row.output === null) throw new Error(`request ${row.id} is COMPLETED without an output`)
      return { kind: 'terminal', body: { ...common, status: row.status, output: row.output, cost: Number(row.cost) } }
    case 'FAILED': {
      const error = { code: row.error_code ?? 'GENERATION_FAILED', message: row.error_message ?? 'the generation failed' }
      return { kind: 'terminal', body: { ...common, status: row.status, error, cost: 0 } }
    }
    case 'CANCELED':
      return { kind: 'terminal', body: { ...common, status: row.status, cost: 0 } }
    case 'IN_QUEUE':
    case 'IN_PROGRESS':
      return { kind: 'running', body: statusBody(row) }
    default:
      return row.status satisfies never
  }
}

function statusBody({ id, status, position, progress, logs }: StatusRow): StatusBody {
  return { request_id: id, status, queue_position: position, progress, logs }
}

function times({ created_at, completed_at }: ResultRow) {
  return { created_at: iso(created_at), completed_at: iso(completed_at ?? created_at) }
}

/** Keys see the requests of their account and environment (CONTRACT, request visibility). */
function visible({ accountId, environment }: Caller, { requestId }: Lookup) {
  const id = requestIdSchema.safeParse(requestId)
  if (!id.success) throw unknownRequest(requestId)
  return sql`r.id = ${id.data}::uuid and r.account_id = ${accountId} and r.environment = ${environment}`
}

export function unknownRequest(requestId: string): HttpError {
  return new HttpError(404, 'not_found', `there is no request ${requestId.slice(0, 80).toWellFormed()}`)
}
