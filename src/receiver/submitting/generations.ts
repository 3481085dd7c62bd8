import { and, eq, getTableColumns, inArray, isNotNull, ne, or, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { durable } from '../../platform/postgres/durable.ts'
import { one } from '../../platform/postgres/errors.ts'
import { leaseOf } from '../../platform/postgres/lease.ts'
import { lockWait } from '../../platform/postgres/lock-wait.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { later } from '../../platform/postgres/time.ts'
import { storableText } from '../../platform/storable-text.ts'
import { toSandbox, type Environment } from '../domain/environment.ts'
import { generations } from '../domain/generations-schema.ts'
import { maxCounted } from '../domain/limits.ts'
import { requests } from '../domain/schema.ts'
import { joinTracked, requeueParked, requeueParkedOf, type TrackedBy } from './tracking.ts'

export type Generation = typeof generations.$inferSelect

export type Intent = {
  idempotencyKey: string
  model: string
  input: unknown
  keyName: string
  environment?: Environment | undefined
  /** The source of the key: see storedName(). */
  sourceName?: string | null
  webhookUrl: string
  metadata: unknown
  now: SQL
}

/** Longer than one call. The lease is not renewed. */
const leaseSeconds = 30
/** The provider forgets an Idempotency-Key after 24 h (spec, Limits). A later retry could be charged again. */
const retryForSeconds = 23.5 * 3600

/** The lease of a submit, for statements with the alias `g`. Claims count its attempts. */
const lease = leaseOf('g', {
  key: { idempotency_key: generations.idempotency_key },
  due_at: generations.next_attempt_at,
  claims: generations.attempts,
})

/** SQL condition on `g`: the submit is pending, and this is its latest attempt. */
export function isHeld({ idempotency_key, attempts }: Generation): SQL {
  return sql`${lease.isHeld({ idempotency_key, claims: attempts })} and g.state = 'pending'`
}

/** SQL condition on `g`: the submit is so old that the provider may have forgotten its Idempotency-Key. */
export function isForgotten(now: SQL): SQL {
  return sql`g.created_at < ${later(now, -retryForSeconds)}`
}

/**
 * For SET of a claim: the doubt begins with it for the default source, which may be called again. Others may ignore the
 * Idempotency-Key: a crash before the call must not keep it from being made, so for them it begins in beginCall().
 */
const doubtClaimed = sql`in_doubt_from = case when g.source_name is null
        then coalesce(g.in_doubt_from, g.attempts + 1) else g.in_doubt_from end`

export type Opened =
  | { kind: 'ours'; generation: Generation; isForgotten: boolean }
  | { kind: 'known' }
  | { kind: 'other_parameters' }

/**
 * Stores the submit and claims its first call. A known submit is claimed again only if the provider refused it, and
 * only with the same parameters. The row is durable, on a synchronous standby too, before the call, since the provider
 * charges.
 */
export async function open(
  db: Database,
  { idempotencyKey, model, input, keyName, environment, sourceName = null, webhookUrl, metadata, now }: Intent,
): Promise<Opened> {
  const leaseEnd = later(now, leaseSeconds)
  const [ours] = await db.execute<Generation & { forgotten: boolean }>(sql`
    with ${durable}
    insert into mediadock.generations as g (idempotency_key, model, input, key_name, sandbox, source_name, webhook_url,
      metadata, created_at, next_attempt_at, attempts, in_doubt_from)
    select ${idempotencyKey}::uuid, ${model}, ${JSON.stringify(input)}::jsonb, ${keyName},
      ${toSandbox(environment)}::boolean, ${sourceName}, ${webhookUrl}, ${metadata === undefined ? null : JSON.stringify(metadata)}::jsonb,
      ${now}, ${leaseEnd}, 1, case when ${sourceName}::text is null then 1 end
    from durable
    on conflict (idempotency_key) do update set
      state = 'pending', next_attempt_at = ${leaseEnd}, attempts = g.attempts + 1,
      ${doubtClaimed}, promised = false, answer_status = null, answer = null,
      -- The provider forgets an Idempotency-Key a day after the call that it accepted: this one, or an earlier one
      -- without an answer. In the latter case the same call is repeated, within the same day.
      created_at = case when g.in_doubt_from is null then excluded.created_at else g.created_at end,
      webhook_url = case when g.in_doubt_from is null then excluded.webhook_url else g.webhook_url end
    where g.state = 'refused' and g.model = excluded.model and g.input = excluded.input
      and g.key_name = excluded.key_name
    returning g.*, ${isForgotten(now)} as forgotten`)
  if (ours) return { kind: 'ours', generation: ours, isForgotten: ours.forgotten }
  // The conflict shows that the row exists. A caller that repeats a pending submit is answered 202.
  const known = await db.execute<{ same: boolean }>(sql`
    with promised as (
      update mediadock.generations set promised = true
      where idempotency_key = ${idempotencyKey} and state = 'pending' and not promised
    )
    select model = ${model} and input = ${JSON.stringify(input)}::jsonb and key_name = ${keyName} as same
    from mediadock.generations where idempotency_key = ${idempotencyKey}`)
  return { kind: one(known, `comparing the intent ${idempotencyKey}`).same ? 'known' : 'other_parameters' }
}

/** Claims submits whose next call is due. No caller waits for their answers. */
export async function claimDue(db: Database, { limit, now }: { limit: number; now: SQL }): Promise<Generation[]> {
  return db.execute<Generation>(sql`
    with ${durable},
    due as (
      select g.idempotency_key from durable, mediadock.generations g
      where g.state = 'pending' and ${lease.isDue(now)}
      order by g.next_attempt_at limit ${limit} for update of g skip locked
    )
    update mediadock.generations g
    set ${lease.claim(now, leaseSeconds)}, ${doubtClaimed}, promised = true
    from due where g.idempotency_key = due.idempotency_key
    returning g.*`)
}

/** Records durably that the call is about to be made. Returns false if it must not be: the claim is no longer held. */
export async function beginCall(db: Database, generation: Generation): Promise<boolean> {
  if (generation.in_doubt_from !== null) return true
  const begun = await db.execute(sql`
    with ${durable}
    update mediadock.generations g set in_doubt_from = g.attempts from durable
    where ${isHeld(generation)} returning g.idempotency_key`)
  return begun.length > 0
}

export type SubmittedAs = TrackedBy & {
  requestId: string
  externalId?: string | null
  cost: number | undefined
  /** How long to wait for each row that another transaction locks. Without, as long as it takes. */
  lockWaitMs?: number
}

/** Ends a submit that the provider accepted, and tracks the request. A row of a faster webhook is joined. */
export async function submitted(
  db: Database,
  { idempotency_key: idempotencyKey }: Generation,
  { requestId, externalId = null, cost, environment, now, lockWaitMs = 0 }: SubmittedAs,
): Promise<void> {
  const rows = await db.execute<{ created: boolean }>(sql`
    with lock_wait as materialized (${lockWait(lockWaitMs)}),
    ended as (
      update mediadock.generations set state = 'submitted', request_id = ${requestId},
        cost = ${cost === undefined ? null : String(cost)}::numeric,
        next_attempt_at = null, last_error = null, answer = null
      from lock_wait where idempotency_key = ${idempotencyKey} and state in ('pending', 'expired')
      returning idempotency_key, model, key_name, source_name, metadata
    ),
    tracked as (
      insert into mediadock.requests as r (request_id, source_name, external_id, model, key_name, key_source, sandbox,
        metadata, idempotency_key, tracked_at)
      select ${requestId}::uuid, source_name, ${externalId}, model, key_name, 'tracked',
        ${toSandbox(environment)}::boolean, metadata, idempotency_key, ${now} from ended
      on conflict (request_id) ${joinTracked(now)}
      -- xmax is 0 for an inserted row, since it has never been locked or updated.
      returning r.request_id, r.confirmed_at is null as open, xmax = 0 as created
    ),
    ${requeueParked({ environment, now })}
    select created from tracked`)
  if (rows[0]?.created === false) await requeueParkedOf(db, requestId, { environment, now })
}

/** The submits without a final answer, counted up to `maxCounted`, and the oldest of them. */
export type WaitingSubmits = {
  submits: number
  oldest: Pick<Generation, 'idempotency_key' | 'last_error'> & { seconds: number }
}

/** Returns undefined if no submit waits. */
export async function readWaitingSubmits(tx: Executor, now: Date): Promise<WaitingSubmits | undefined> {
  const rows = await tx.execute<WaitingSubmits['oldest'] & { submits: number }>(sql`
    select count(*) over ()::int as submits, idempotency_key, last_error,
      greatest(0, extract(epoch from ${now.toISOString()}::timestamptz - created_at))::float8 as seconds
    from (select * from mediadock.generations g where g.state = 'pending' limit ${maxCounted}) as pending
    order by created_at limit 1`)
  return rows[0] && { submits: rows[0].submits, oldest: rows[0] }
}

/** The beginning of the `last_error` of an attempt that was not made, because its key had no call. */
export const notCalled = 'not called: '

/** True if the provider may have accepted an earlier attempt. */
export function isInDoubt({ in_doubt_from, attempts }: Generation): boolean {
  return in_doubt_from !== null && in_doubt_from < attempts
}

/** SQL on `g`: `in_doubt_from` after an attempt that was surely not accepted. Null if the doubt began with it. */
export const unlessThisOne = sql`nullif(g.in_doubt_from, g.attempts)`

/** `isCertain`: the provider was not called, or did not accept the submit. */
export type Postponed = { now: SQL; error: string; pauseSeconds: number | undefined; isCertain: boolean }

/** Schedules the next attempt; none without a pause. */
export async function postpone(
  db: Database,
  generation: Generation,
  { now, error, pauseSeconds, isCertain }: Postponed,
): Promise<void> {
  await db.execute(sql`
    update mediadock.generations g set
      next_attempt_at = ${pauseSeconds === undefined ? null : later(now, pauseSeconds)},
      last_error = ${storableText(error)}, in_doubt_from = ${isCertain ? unlessThisOne : sql`g.in_doubt_from`}
    where ${isHeld(generation)}`)
}

/** A submit with the status of its tracked request; null before there is one. */
export type FoundGeneration = Generation & { status: string | null }

export async function find(db: Database, idempotencyKey: string): Promise<FoundGeneration | undefined> {
  const { idempotency_key, request_id } = generations
  const [found] = await db
    .select({ ...getTableColumns(generations), status: requests.status })
    .from(generations)
    .leftJoin(requests, eq(requests.request_id, request_id))
    .where(eq(idempotency_key, idempotencyKey))
  return found
}

/** Returns the Idempotency-Keys whose submits have ended: refused, expired, or with a complete result. */
export async function overOf(db: Executor, idempotencyKeys: readonly string[]): Promise<string[]> {
  const { idempotency_key, request_id, state } = generations
  const { landed_at, media_complete, status } = requests
  const isOver = inArray(state, ['refused', 'expired'])
  const isComplete = and(isNotNull(landed_at), or(media_complete, ne(status, 'COMPLETED')))
  const rows = await db
    .select({ idempotency_key })
    .from(generations)
    .leftJoin(requests, eq(requests.request_id, request_id))
    .where(and(inArray(idempotency_key, [...idempotencyKeys]), or(isOver, isComplete)))
  return rows.map(({ idempotency_key: key }) => key)
}
