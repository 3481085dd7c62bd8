import type { z } from 'zod'
import { HttpError } from '../../platform/http/http.ts'
import { and, eq, sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { type accountSchema, requestIdSchema, type Result, type StatusBody } from '../../wire/schemas.ts'
import type { Caller } from '../accounts/identify.ts'
import * as schema from '../domain/schema.ts'
import { requests } from '../domain/schema.ts'
import type { StatusReader } from '../queue/status-reader.ts'

export type Lookup = { requestId: string; withLogs: boolean }
export type ReadDeps = { db: Database; statusReader: StatusReader }

/** `GET /v1/requests/{request_id}/status` (spec, Endpoints). */
export async function readStatus(
  { statusReader }: ReadDeps,
  caller: Caller,
  { requestId, withLogs }: Lookup,
): Promise<StatusBody> {
  const { accountId, environment } = caller
  const status = await statusReader({ requestId: knownId(requestId), accountId, environment, withLogs })
  if (status === null) throw unknownRequest(requestId)
  return status
}

export type ResultAnswer = { kind: 'terminal'; body: Result } | { kind: 'running'; body: StatusBody }

/** Answers `GET /v1/requests/{request_id}`: 200 once terminal, until then 202 with the status (spec, result). */
export async function readResult(deps: ReadDeps, caller: Caller, lookup: Lookup): Promise<ResultAnswer> {
  // Keys see the requests of their account and environment (decisions, request visibility).
  const { id, account_id, environment, status, model, output, cost, error_code, error_message } = requests
  const { created_at, completed_at } = requests
  const isVisible = and(eq(account_id, caller.accountId), eq(environment, caller.environment))
  const [row] = await deps.db
    .select({ id, status, model, output, cost, error_code, error_message, created_at, completed_at })
    .from(requests)
    .where(and(eq(id, knownId(lookup.requestId)), isVisible))
  if (row === undefined) throw unknownRequest(lookup.requestId)
  const common = {
    request_id: row.id,
    model: row.model,
    created_at: row.created_at,
    completed_at: row.completed_at ?? row.created_at,
  }
  switch (row.status) {
    case 'COMPLETED':
      if (row.output === null) throw new Error(`request ${row.id} is COMPLETED without an output`)
      return { kind: 'terminal', body: { ...common, status: row.status, output: row.output, cost: Number(row.cost) } }
    case 'FAILED': {
      const error = {
        code: row.error_code ?? 'GENERATION_FAILED',
        message: row.error_message ?? 'the generation failed',
      }
      return { kind: 'terminal', body: { ...common, status: row.status, error, cost: 0 } }
    }
    case 'CANCELED':
      return { kind: 'terminal', body: { ...common, status: row.status, cost: 0 } }
    case 'IN_QUEUE':
    case 'IN_PROGRESS': {
      const body = await readStatus(deps, caller, lookup)
      // The request may have ended between the two reads. Then it is terminal.
      const ended = body.status !== 'IN_QUEUE' && body.status !== 'IN_PROGRESS'
      return ended ? readResult(deps, caller, lookup) : { kind: 'running', body }
    }
    default:
      return row.status satisfies never
  }
}

function knownId(requestId: string): string {
  const id = requestIdSchema.safeParse(requestId)
  if (!id.success) throw unknownRequest(requestId)
  return id.data
}

export function unknownRequest(requestId: string): HttpError {
  return new HttpError(404, 'not_found', `there is no request ${requestId.slice(0, 80).toWellFormed()}`)
}

/**
 * Reads the answer of `GET /v1/account`, which the console shows too (spec, Account; decisions, balance.credits and
 * usage_30d). Throws HttpError 404 for an unknown account.
 */
export async function readAccount(db: Database, accountId: string): Promise<z.infer<typeof accountSchema>> {
  const since = sql`now() - make_interval(days => 30)`
  const [row] = await db.execute<RowOf<typeof schema.accounts, 'available'> & { requests: number; spent: string }>(sql`
    select a.available,
      (select count(*)::int from provider.requests r
       where r.account_id = a.id and r.environment = 'live' and r.created_at > ${since}) as requests,
      (select coalesce(sum(e.amount), 0) from provider.ledger_entries e
       where e.account_id = a.id and e.book = 'settled' and e.created_at > ${since}) as spent
    from provider.accounts a where a.id = ${accountId}`)
  if (row === undefined) throw new HttpError(404, 'not_found', 'there is no such account')
  return {
    account_id: accountId,
    balance: { credits: Number(row.available) },
    usage_30d: { requests: row.requests, credits_spent: Number(row.spent) },
  }
}
