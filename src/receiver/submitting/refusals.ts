import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { ErrorEnvelope } from '../../wire/schemas.ts'
import * as submitting from '../domain/generations-schema.ts'
import { addChange } from '../landing/add-change.ts'
import { unlessThisOne, type Generation } from './generations.ts'

// How a submit ends without a request.

const generations = columnsOf(submitting.generations)

/**
 * The provider refused for good; the same key may be tried again by the submitter (spec, Idempotency rules). Where a caller was
 * answered 202, the feed gets a change.
 */
export async function refused(
  db: Database,
  { idempotencyKey, attempts }: Generation,
  { status, envelope, now }: { status: number; envelope: ErrorEnvelope; now: Date },
): Promise<void> {
  await db.execute(sql`
    with ended as (
      update mediadock.generations set ${generations.state} = 'refused', ${generations.next_attempt_at} = null, ${generations.answer_status} = ${status},
        ${generations.answer} = ${JSON.stringify(envelope)}::jsonb, ${generations.last_error} = ${envelope.error.code},
        ${generations.in_doubt_from} = ${unlessThisOne}
      where ${generations.idempotency_key} = ${idempotencyKey} and ${generations.attempts} = ${attempts} and ${generations.state} = 'pending'
      returning ${list(generations, 'idempotency_key', 'promised')}
    )
    ${addChange(sql`${now.toISOString()}::timestamptz`, ofRefused(sql`promised`))}`)
}

/** What a submit that was given up shows in place of the provider's answer. */
const expiredEnvelope: ErrorEnvelope = {
  error: {
    type: 'api_error',
    code: 'submit_expired',
    message:
      'The provider gave no final answer within 23.5 hours. It may have charged for this submit: look there before you submit it again.',
  },
}

/** A submit that got no final answer in the time that the provider remembers a key ends as expired, which is a change of the feed. */
export async function expire(db: Database, { before, now }: { before: Date; now: Date }): Promise<void> {
  await db.execute(sql`
    with ended as (
      update mediadock.generations set ${generations.state} = 'expired', ${generations.next_attempt_at} = null,
        ${generations.answer} = ${JSON.stringify(expiredEnvelope)}::jsonb
      where ${generations.state} = 'pending' and ${generations.created_at} < ${before.toISOString()}::timestamptz and ${generations.next_attempt_at} is not null
      returning ${generations.idempotency_key}
    )
    ${addChange(sql`${now.toISOString()}::timestamptz`, ofRefused(sql`true`))}`)
}

/** The rows of `ended` as changes of the feed. */
function ofRefused(condition: SQL): SQL {
  return sql`(select idempotency_key as request_id, 'REFUSED' as status, false as media_complete from ended where ${condition}) as refused`
}
