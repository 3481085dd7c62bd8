import { columnsOf, list } from '../../runtime/postgres/columns.ts'
import { sql } from '../../runtime/postgres/drizzle.ts'
import { answered, one } from '../../runtime/postgres/errors.ts'
import type { Database } from '../../runtime/postgres/postgres.ts'
import type { RowOf } from '../../runtime/postgres/rows.ts'
import type { ErrorEnvelope } from '../../wire/schemas.ts'
import * as submitting from '../domain/generations-schema.ts'
import type { Environment } from '../domain/keys.ts'
import * as schema from '../domain/schema.ts'
import { itemsWanted } from './items-wanted.ts'
import { joinTracked, requeueParked } from './tracking.ts'

const generations = columnsOf(submitting.generations)
const g = columnsOf(submitting.generations, 'g')
const requests = columnsOf(schema.requests)
const r = columnsOf(schema.requests, 'r')

/** An intent to generate, and how far it has come. */
export type Generation = {
  idempotencyKey: string
  state: 'pending' | 'submitted' | 'refused' | 'expired'
  model: string
  input: unknown
  keyName: string
  /** Undefined for what an older release has opened. */
  webhookUrl: string | undefined
  metadata: unknown
  createdAt: Date
  requestId: string | undefined
  cost: number | undefined
  /** Of the tracked request, once there is one. */
  status: string | undefined
  nextAttemptAt: Date | undefined
  attempts: number
  answerStatus: number | undefined
  answer: unknown
  lastError: string | undefined
}

export type Intent = {
  idempotencyKey: string
  model: string
  input: unknown
  keyName: string
  webhookUrl: string
  metadata: unknown
  now: Date
}

/** Longer than one call: whoever claimed an intent and died gives it up after this. */
const leaseSeconds = 30

const names = [
  'idempotency_key',
  'state',
  'model',
  'input',
  'key_name',
  'webhook_url',
  'metadata',
  'created_at',
  'request_id',
  'cost',
  'next_attempt_at',
  'attempts',
  'answer_status',
  'answer',
  'last_error',
] as const

const columns = list(generations, ...names)

type Row = RowOf<typeof submitting.generations, (typeof names)[number]> & {
  status?: RowOf<typeof schema.requests, 'status'>['status'] | null
}

export type Opened = { kind: 'ours'; generation: Generation } | { kind: 'known' } | { kind: 'other_parameters' }

/**
 * Writes the intent and claims its first call. A known one is claimed again only
 * if the provider refused it, and only with the same parameters.
 */
export async function open(db: Database, { idempotencyKey, model, input, keyName, webhookUrl, metadata, now }: Intent): Promise<Opened> {
  const lease = sql`${now.toISOString()}::timestamptz + make_interval(secs => ${leaseSeconds})`
  const ours = await db.execute<Row>(sql`
    insert into mediadock.generations as g (${list(
      generations,
      'idempotency_key',
      'model',
      'input',
      'key_name',
      'webhook_url',
      'metadata',
      'created_at',
      'next_attempt_at',
      'attempts',
      'in_doubt_from',
    )})
    values (${idempotencyKey}, ${model}, ${JSON.stringify(input)}::jsonb, ${keyName}, ${webhookUrl}, ${metadata === undefined ? null : JSON.stringify(metadata)}::jsonb,
      ${now.toISOString()}::timestamptz, ${lease}, 1, 1)
    on conflict (idempotency_key) do update set
      state = 'pending', next_attempt_at = ${lease}, attempts = ${g.attempts} + 1, in_doubt_from = coalesce(${g.in_doubt_from}, ${g.attempts} + 1),
      answer_status = null, answer = null,
      -- The provider forgets a key a day after the call that it took. That may be this one, or one before it that got no
      -- answer: then what was said is said again, within the same day.
      created_at = case when ${g.in_doubt_from} is null then excluded.created_at else ${g.created_at} end,
      webhook_url = case when ${g.in_doubt_from} is null then excluded.webhook_url else ${g.webhook_url} end
    where ${g.state} = 'refused' and ${g.model} = excluded.model and ${g.input} = excluded.input and ${g.key_name} = excluded.key_name
    returning ${columns}`)
  const [row] = answered(ours, `opening the intent ${idempotencyKey}`)
  if (row) return { kind: 'ours', generation: toGeneration(row) }
  // It is there, since it was in the way.
  const known = await db.execute<{ same: boolean }>(sql`
    select ${generations.model} = ${model} and ${generations.input} = ${JSON.stringify(input)}::jsonb and ${generations.key_name} = ${keyName} as same
    from mediadock.generations where ${generations.idempotency_key} = ${idempotencyKey}`)
  return { kind: one(known, `comparing the intent ${idempotencyKey}`).same ? 'known' : 'other_parameters' }
}

/** Claims intents whose next call is due; the lease gives them back if we die. */
export async function claimDue(db: Database, { limit, now }: { limit: number; now: Date }): Promise<Generation[]> {
  const rows = await db.execute<Row>(sql`
    with due as (
      select ${generations.idempotency_key} from mediadock.generations
      where ${generations.state} = 'pending' and ${generations.next_attempt_at} <= ${now.toISOString()}::timestamptz
      order by ${generations.next_attempt_at} limit ${limit} for update skip locked
    )
    update mediadock.generations g
    set ${generations.next_attempt_at} = ${now.toISOString()}::timestamptz + make_interval(secs => ${leaseSeconds}), ${generations.attempts} = ${g.attempts} + 1,
      ${generations.in_doubt_from} = coalesce(${g.in_doubt_from}, ${g.attempts} + 1)
    from due where ${g.idempotency_key} = due.idempotency_key
    returning ${sql.raw('g.*')}`)
  return answered(rows, 'claiming intents').map(toGeneration)
}

export type SubmittedAs = { requestId: string; cost: number; environment: Environment | undefined; keyNames: readonly string[]; now: Date }

/** The provider took it: the intent ends and the request is tracked, joined with what a faster webhook brought. */
export async function submitted(
  db: Database,
  { idempotencyKey, input }: Generation,
  { requestId, cost, environment, keyNames, now }: SubmittedAs,
): Promise<void> {
  const sandbox = environment === undefined ? null : environment === 'sandbox'
  const ended = await db.execute(sql`
    with ended as (
      update mediadock.generations set ${generations.state} = 'submitted', ${generations.request_id} = ${requestId}, ${generations.cost} = ${String(cost)}::numeric,
        ${generations.next_attempt_at} = null, ${generations.last_error} = null
      where ${generations.idempotency_key} = ${idempotencyKey} and ${generations.state} in ('pending', 'expired')
      returning ${list(generations, 'model', 'key_name', 'metadata')}
    ),
    tracked as (
      insert into mediadock.requests as r (${list(requests, 'request_id', 'model', 'key_name', 'key_source', 'sandbox', 'metadata', 'items_wanted', 'tracked_at')})
      select ${requestId}::uuid, model, key_name, 'tracked', ${sandbox}::boolean, metadata, ${itemsWanted(input) ?? null}::smallint, ${now.toISOString()}::timestamptz from ended
      on conflict (request_id) ${joinTracked(now)}
      returning ${r.request_id}, ${r.confirmed_at} is null as open
    ),
    ${requeueParked({ keyNames, now })}
    select from tracked`)
  answered(ended, `tracking the request ${requestId}`)
}

/** The provider refused for good; the same key may be tried again by the submitter (spec, Idempotency rules). */
export async function refused(
  db: Database,
  { idempotencyKey, attempts }: Generation,
  answer: { status: number; envelope: ErrorEnvelope },
): Promise<void> {
  await db.execute(sql`
    update mediadock.generations set ${generations.state} = 'refused', ${generations.next_attempt_at} = null, ${generations.answer_status} = ${answer.status},
      ${generations.answer} = ${JSON.stringify(answer.envelope)}::jsonb, ${generations.last_error} = ${answer.envelope.error.code},
      ${generations.in_doubt_from} = ${unlessThisOne}
    where ${generations.idempotency_key} = ${idempotencyKey} and ${generations.attempts} = ${attempts} and ${generations.state} = 'pending'`)
}

/** What is certain not to have been taken leaves no doubt, but what there was before. */
const unlessThisOne = sql`nullif(${generations.in_doubt_from}, ${generations.attempts})`

/** `isCertain`: the provider was not asked, or took nothing. */
export async function postpone(
  db: Database,
  { idempotencyKey, attempts }: Generation,
  { error, at, isCertain }: { error: string; at: Date; isCertain: boolean },
): Promise<void> {
  await db.execute(sql`
    update mediadock.generations set ${generations.next_attempt_at} = ${at.toISOString()}::timestamptz, ${generations.last_error} = ${error.slice(0, 500)},
      ${generations.in_doubt_from} = ${isCertain ? unlessThisOne : sql`${generations.in_doubt_from}`}
    where ${generations.idempotency_key} = ${idempotencyKey} and ${generations.attempts} = ${attempts} and ${generations.state} = 'pending'`)
}

/** A submit that got no answer in the time that the provider remembers a key ends as expired. */
export async function expire(db: Database, { before }: { before: Date }): Promise<void> {
  await db.execute(sql`
    update mediadock.generations set ${generations.state} = 'expired', ${generations.next_attempt_at} = null
    where ${generations.state} = 'pending' and ${generations.created_at} < ${before.toISOString()}::timestamptz and ${generations.next_attempt_at} is not null`)
}

export async function find(db: Database, idempotencyKey: string): Promise<Generation | undefined> {
  const rows = await db.execute<Row>(sql`
    select ${columns}, (select ${r.status} from mediadock.requests r where ${r.request_id} = generations.${generations.request_id}) as status
    from mediadock.generations where ${generations.idempotency_key} = ${idempotencyKey}`)
  const [row] = answered(rows, `looking up the intent ${idempotencyKey}`)
  return row && toGeneration(row)
}

function toGeneration(row: Row): Generation {
  return {
    idempotencyKey: row.idempotency_key,
    state: row.state,
    model: row.model,
    input: row.input,
    keyName: row.key_name,
    webhookUrl: row.webhook_url ?? undefined,
    metadata: row.metadata,
    createdAt: new Date(row.created_at),
    requestId: row.request_id ?? undefined,
    cost: row.cost === null ? undefined : Number(row.cost),
    status: row.status ?? undefined,
    nextAttemptAt: row.next_attempt_at === null ? undefined : new Date(row.next_attempt_at),
    attempts: row.attempts,
    answerStatus: row.answer_status ?? undefined,
    answer: row.answer,
    lastError: row.last_error ?? undefined,
  }
}
