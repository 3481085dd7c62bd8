import postgres from 'postgres'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { databaseErrorOf, isConnectionLost, isNoAnswer, one } from '../../platform/postgres/errors.ts'
import { clientOf, type Database, databaseOver } from '../../platform/postgres/postgres.ts'
import type { Output } from '../../wire/schemas.ts'
import { moveCredits } from '../accounts/ledger.ts'
import type { Input } from '../catalog/input.ts'
import type { EngineChoice } from '../domain/engine-choice.ts'
import type { Faults } from '../domain/faults.ts'
import type { Environment } from '../domain/schema.ts'
import type { NewDelivery } from '../webhooks/notification.ts'
import { insertDelivery } from '../webhooks/outbox.ts'

export type Submission = {
  requestId: string
  accountId: string
  keyId: string
  environment: Environment
  model: string
  input: Input
  engine: EngineChoice
  cost: string
  webhookUrl: string | undefined
  faults: Faults | null
  idempotency: { key: string; fingerprint: Buffer } | undefined
  /** The canned result of a sandbox key, whose request is COMPLETED at once. Undefined for queued requests. */
  completed: { output: Output; delivery: NewDelivery | undefined } | undefined
}

/** `key_taken`: another submit with the same key was written since the lookup. */
export type SubmitOutcome = 'accepted' | 'insufficient_credits' | 'key_taken'

/**
 * Reserves credits, queues the request and remembers the Idempotency-Key, in one statement.
 *
 * - The account's row decides whether the credits suffice. Postgres evaluates `available >= charge` again after waiting
 *   for the row, so parallel submits never overdraw.
 * - The same row assigns turns. An account's next request gets the turn after its last one, or the lowest turn in the
 *   queue if that is later. The queue is served by turn, so accounts alternate.
 * - Of parallel submits with the same Idempotency-Key, one is written. The others wait for it, violate the primary key
 *   of idempotency_keys, and are rolled back.
 *
 * Does not send the statement if `signal` aborts while the submit waits for a connection.
 */
export async function writeSubmission(
  db: Database,
  submission: Submission,
  now: SQL,
  signal?: AbortSignal,
): Promise<SubmitOutcome> {
  try {
    const rows = await runInTime(db, statement(submission, now), signal)
    const { written } = one(rows, `submitting the request ${submission.requestId}`)
    return written ? 'accepted' : 'insufficient_credits'
  } catch (error) {
    if (isKeyTaken(error)) return 'key_taken'
    throw error
  }
}

/** Waits for a connection first, because the driver would run a queued statement however late. */
async function runInTime(db: Database, query: SQL, signal: AbortSignal | undefined) {
  const connection = await clientOf(db).reserve()
  let usable = true
  if (signal?.aborted) connection.release()
  signal?.throwIfAborted()
  try {
    return await databaseOver(connection).execute<{ written: boolean }>(query)
  } catch (error) {
    // A lost connection is not released: postgres.js takes it back into the pool itself.
    usable = !isConnectionLost(error) && !isNoAnswer(error)
    throw error
  } finally {
    if (usable) connection.release()
  }
}

function statement(submission: Submission, now: SQL): SQL {
  const { requestId, accountId, keyId, environment, completed, cost, idempotency } = submission
  const charge = environment === 'live' ? cost : '0'
  const key = idempotency?.key ?? null
  // The request of such a submit is never queued, and takes no turn and no credits.
  const isFree = sql`select a.id, null::bigint as turn from provider.accounts a, patience where a.id = ${accountId}`
  const endedAt = completed ? now : sql`null::timestamptz`
  // Less than the ten seconds of the answer, so that a wait for the account's row usually ends before the 503.
  return sql`
    with patience as materialized (
      select set_config('lock_timeout', '8000ms', true)
    ), payer as (${completed ? isFree : takeTurn(accountId, environment, charge)}
    ), request as (
      insert into provider.requests (id, account_id, api_key_id, environment, model, input, engine, cost, status, turn,
        progress, output, webhook_url, faults, created_at, started_at, completed_at)
      select ${requestId}, payer.id, ${keyId}::uuid, ${environment}, ${submission.model}, ${json(submission.input)},
        ${json(completed ? null : submission.engine)}, ${cost}::numeric, ${completed ? 'COMPLETED' : 'IN_QUEUE'},
        payer.turn, ${completed ? 100 : 0}::int, ${json(completed?.output ?? null)}, ${submission.webhookUrl ?? null},
        ${json(submission.faults)}, ${now}, ${endedAt}, ${endedAt}
      from payer
      returning id, account_id, api_key_id, environment, cost, faults, created_at
    ), reserved as (${moveCredits('reserve', reserved)}
    ), remembered as (
      insert into provider.idempotency_keys (account_id, environment, key, fingerprint, request_id, created_at)
      select account_id, environment, ${key}::uuid, ${idempotency?.fingerprint ?? null}::bytea, id, created_at
      from request where ${key}::uuid is not null
    ), notified as (${insertDelivery(completed?.delivery, sql`request`, now)}
    )
    select request.id is not null as written from patience left join request on true`
}

const reserved = sql`(
  select account_id, id as request_id, cost as amount, created_at as at from request where environment = 'live')`

function json(value: object | null): SQL {
  return sql`${value === null ? null : JSON.stringify(value)}::jsonb`
}

/** The two queues count turns separately, so that sandbox requests do not delay live ones. */
function takeTurn(accountId: string, environment: Environment, charge: string): SQL {
  const last = environment === 'live' ? sql`last_turn` : sql`last_sandbox_turn`
  return sql`
    update provider.accounts a
    set available = a.available - ${charge}::numeric,
      ${last} = greatest(a.${last} + 1, coalesce(
        (select min(turn) from provider.requests where status = 'IN_QUEUE' and environment = ${environment}),
        (select max(other.${last}) + 1 from provider.accounts other)))
    from patience
    where a.id = ${accountId} and a.available >= ${charge}::numeric
    returning a.id, a.${last} as turn`
}

function isKeyTaken(error: unknown): boolean {
  const cause = databaseErrorOf(error)
  return cause instanceof postgres.PostgresError && cause.code === '23505' && cause.table_name === 'idempotency_keys'
}
