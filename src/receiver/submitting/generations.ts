import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { and, eq, inArray, isNotNull, ne, or, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { durable } from '../../platform/postgres/durable.ts'
import { one } from '../../platform/postgres/errors.ts'
import { leaseOf } from '../../platform/postgres/lease.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { later } from '../../platform/postgres/time.ts'
import * as submitting from '../domain/generations-schema.ts'
import * as schema from '../domain/schema.ts'
import { itemsWanted } from './items-wanted.ts'
import { joinTracked, requeueParked, type TrackedBy } from './tracking.ts'

const generations = columnsOf(submitting.generations)
const g = columnsOf(submitting.generations, 'g')
const requests = columnsOf(schema.requests)
const r = columnsOf(schema.requests, 'r')

/** A submit, with its state. */
export type Generation = {
  idempotencyKey: string
  state: 'pending' | 'submitted' | 'refused' | 'expired'
  model: string
  input: unknown
  keyName: string
  /** The source of that key: see storedName(). */
  sourceName: string | null
  /** Undefined for submits of an older release. */
  webhookUrl: string | undefined
  metadata: unknown
  createdAt: Date
  requestId: string | undefined
  cost: number | undefined
  /** The status of the tracked request, if there is one. */
  status: string | undefined
  nextAttemptAt: Date | undefined
  attempts: number
  /** True if the provider may have accepted an earlier attempt. */
  inDoubt: boolean
  /** True if a caller was answered 202. */
  promised: boolean
  answerStatus: number | undefined
  answer: unknown
  lastError: string | undefined
}

export type Intent = {
  idempotencyKey: string
  model: string
  input: unknown
  keyName: string
  /** Of the key; undefined where its environment is not known. */
  sandbox?: boolean | undefined
  /** The source of the key: see storedName(). */
  sourceName?: string | null
  webhookUrl: string
  metadata: unknown
  now: SQL
}

/** Longer error texts are cut before they are stored. Pages show no more than this. */
const maxErrorLength = 500
/** Longer than one call. The lease is not renewed. */
const leaseSeconds = 30
/** The provider forgets a key after 24 h (spec, Limits). A later retry could be charged again. */
const retryForSeconds = 23.5 * 3600

/** The lease of a submit, for statements with the alias `g`. Claims count its attempts. */
const lease = leaseOf('g', {
  key: { idempotencyKey: submitting.generations.idempotency_key },
  due_at: submitting.generations.next_attempt_at,
  claims: submitting.generations.attempts,
})

/** SQL condition on `g`: the submit is pending, and this is its latest attempt. */
export function isHeld({ idempotencyKey, attempts }: Generation): SQL {
  return sql`${lease.isHeld({ idempotencyKey, claims: attempts })} and ${g.state} = 'pending'`
}

/** SQL condition on `g`: the submit is so old that the provider may have forgotten its Idempotency-Key. */
export function isForgotten(now: SQL): SQL {
  return sql`${g.created_at} < ${later(now, -retryForSeconds)}`
}

const names = [
  'idempotency_key',
  'state',
  'model',
  'input',
  'key_name',
  'source_name',
  'webhook_url',
  'metadata',
  'created_at',
  'request_id',
  'cost',
  'next_attempt_at',
  'attempts',
  'in_doubt_from',
  'promised',
  'answer_status',
  'answer',
  'last_error',
] as const

const columns = list(generations, ...names)

type Row = RowOf<typeof submitting.generations, (typeof names)[number]> & {
  status?: RowOf<typeof schema.requests, 'status'>['status'] | null
}

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
  { idempotencyKey, model, input, keyName, sandbox, sourceName = null, webhookUrl, metadata, now }: Intent,
): Promise<Opened> {
  const leaseEnd = later(now, leaseSeconds)
  const ours = await db.execute<Row & { forgotten: boolean }>(sql`
    with ${durable}
    insert into mediadock.generations as g (${list(
      generations,
      'idempotency_key',
      'model',
      'input',
      'key_name',
      'sandbox',
      'source_name',
      'webhook_url',
      'metadata',
      'created_at',
      'next_attempt_at',
      'attempts',
      'in_doubt_from',
    )})
    select ${idempotencyKey}::uuid, ${model}, ${JSON.stringify(input)}::jsonb, ${keyName}, ${sandbox ?? null}::boolean,
      ${sourceName},
      ${webhookUrl},
      ${metadata === undefined ? null : JSON.stringify(metadata)}::jsonb,
      ${now}, ${leaseEnd}, 1, 1
    from durable
    on conflict (idempotency_key) do update set
      state = 'pending', next_attempt_at = ${leaseEnd}, attempts = ${g.attempts} + 1,
        in_doubt_from = coalesce(${g.in_doubt_from}, ${g.attempts} + 1),
      promised = false, answer_status = null, answer = null,
      -- The provider forgets a key a day after the call that it accepted: this one, or an earlier one without an
      -- answer. In the latter case the same call is repeated, within the same day.
      created_at = case when ${g.in_doubt_from} is null then excluded.created_at else ${g.created_at} end,
      webhook_url = case when ${g.in_doubt_from} is null then excluded.webhook_url else ${g.webhook_url} end
    where ${g.state} = 'refused' and ${g.model} = excluded.model and ${g.input} = excluded.input
      and ${g.key_name} = excluded.key_name
    returning ${columns}, ${isForgotten(now)} as forgotten`)
  const [row] = ours
  if (row) return { kind: 'ours', generation: toGeneration(row), isForgotten: row.forgotten }
  // The conflict shows that the row exists. A caller that repeats a pending submit is answered 202.
  const known = await db.execute<{ same: boolean }>(sql`
    with promised as (
      update mediadock.generations set ${generations.promised} = true
      where ${generations.idempotency_key} = ${idempotencyKey} and ${generations.state} = 'pending'
        and not ${generations.promised}
    )
    select ${generations.model} = ${model} and ${generations.input} = ${JSON.stringify(input)}::jsonb
      and ${generations.key_name} = ${keyName} as same
    from mediadock.generations where ${generations.idempotency_key} = ${idempotencyKey}`)
  return { kind: one(known, `comparing the intent ${idempotencyKey}`).same ? 'known' : 'other_parameters' }
}

/** Claims submits whose next call is due. No caller waits for their answers. */
export async function claimDue(db: Database, { limit, now }: { limit: number; now: SQL }): Promise<Generation[]> {
  const rows = await db.execute<Row>(sql`
    with ${durable},
    due as (
      select ${g.idempotency_key} from durable, mediadock.generations g
      where ${g.state} = 'pending' and ${lease.isDue(now)}
      order by ${g.next_attempt_at} limit ${limit} for update of g skip locked
    )
    update mediadock.generations g
    set ${lease.claim(now, leaseSeconds)},
      ${generations.in_doubt_from} = coalesce(${g.in_doubt_from}, ${g.attempts} + 1), ${generations.promised} = true
    from due where ${g.idempotency_key} = due.idempotency_key
    returning ${sql.raw('g.*')}`)
  return rows.map(toGeneration)
}

export type SubmittedAs = TrackedBy & { requestId: string; externalId?: string | null; cost: number | undefined }

/** Ends a submit that the provider accepted, and tracks the request. A row of a faster webhook is joined. */
export async function submitted(
  db: Database,
  { idempotencyKey, input }: Generation,
  { requestId, externalId = null, cost, environment, keyNames, now }: SubmittedAs,
): Promise<void> {
  const sandbox = environment === undefined ? null : environment === 'sandbox'
  await db.execute(sql`
    with ended as (
      update mediadock.generations set ${generations.state} = 'submitted', ${generations.request_id} = ${requestId},
        ${generations.cost} = ${cost === undefined ? null : String(cost)}::numeric,
        ${generations.next_attempt_at} = null, ${generations.last_error} = null, ${generations.answer} = null
      where ${generations.idempotency_key} = ${idempotencyKey} and ${generations.state} in ('pending', 'expired')
      returning ${list(generations, 'idempotency_key', 'model', 'key_name', 'source_name', 'metadata')}
    ),
    tracked as (
      insert into mediadock.requests as r (
        ${list(requests, 'request_id', 'source_name', 'external_id')},
        ${list(requests, 'model', 'key_name', 'key_source', 'sandbox', 'metadata')},
        ${list(requests, 'idempotency_key', 'items_wanted', 'tracked_at')})
      select ${requestId}::uuid, source_name, ${externalId}, model, key_name, 'tracked', ${sandbox}::boolean,
        metadata, idempotency_key,
        ${itemsWanted(input) ?? null}::smallint, ${now} from ended
      on conflict (request_id) ${joinTracked(now)}
      returning ${r.request_id}, ${r.confirmed_at} is null as open
    ),
    ${requeueParked({ environment, keyNames, now })}
    select from tracked`)
}

/** SQL on `g`: `in_doubt_from` after an attempt that was surely not accepted. Null if the doubt began with it. */
export const unlessThisOne = sql`nullif(${g.in_doubt_from}, ${g.attempts})`

/**
 * Schedules the next attempt; none without a pause. `isCertain`: the provider was not called, or did not accept the
 * submit.
 */
export async function postpone(
  db: Database,
  generation: Generation,
  {
    now,
    error,
    pauseSeconds,
    isCertain,
  }: { now: SQL; error: string; pauseSeconds: number | undefined; isCertain: boolean },
): Promise<void> {
  await db.execute(sql`
    update mediadock.generations g set
      ${generations.next_attempt_at} = ${pauseSeconds === undefined ? null : later(now, pauseSeconds)},
      ${generations.last_error} = ${error.slice(0, maxErrorLength)},
      ${generations.in_doubt_from} = ${isCertain ? unlessThisOne : sql`${g.in_doubt_from}`}
    where ${isHeld(generation)}`)
}

export async function find(db: Database, idempotencyKey: string): Promise<Generation | undefined> {
  const rows = await db.execute<Row>(sql`
    select ${columns}, (select ${r.status} from mediadock.requests r
      where ${r.request_id} = generations.${generations.request_id}) as status
    from mediadock.generations where ${generations.idempotency_key} = ${idempotencyKey}`)
  const [row] = rows
  return row && toGeneration(row)
}

/** Returns those of the keys that have ended: refused, expired, or with a complete result. */
export async function overOf(db: Executor, idempotencyKeys: readonly string[]): Promise<string[]> {
  const { idempotency_key, request_id, state } = submitting.generations
  const { landed_at, media_complete, status } = schema.requests
  const isOver = inArray(state, ['refused', 'expired'])
  const isComplete = and(isNotNull(landed_at), or(media_complete, ne(status, 'COMPLETED')))
  const rows = await db
    .select({ idempotency_key })
    .from(submitting.generations)
    .leftJoin(schema.requests, eq(schema.requests.request_id, request_id))
    .where(and(inArray(idempotency_key, [...idempotencyKeys]), or(isOver, isComplete)))
  return rows.map(({ idempotency_key: key }) => key)
}

function toGeneration(row: Row): Generation {
  return {
    idempotencyKey: row.idempotency_key,
    state: row.state,
    model: row.model,
    input: row.input,
    keyName: row.key_name,
    sourceName: row.source_name,
    webhookUrl: row.webhook_url ?? undefined,
    metadata: row.metadata,
    createdAt: new Date(row.created_at),
    requestId: row.request_id ?? undefined,
    cost: row.cost === null ? undefined : Number(row.cost),
    status: row.status ?? undefined,
    nextAttemptAt: row.next_attempt_at === null ? undefined : new Date(row.next_attempt_at),
    attempts: row.attempts,
    inDoubt: row.in_doubt_from !== null && row.in_doubt_from < row.attempts,
    promised: row.promised,
    answerStatus: row.answer_status ?? undefined,
    answer: row.answer,
    lastError: row.last_error ?? undefined,
  }
}
