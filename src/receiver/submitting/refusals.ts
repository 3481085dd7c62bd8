import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { ErrorEnvelope } from '../../wire/schemas.ts'
import * as submitting from '../domain/generations-schema.ts'
import { addChange } from '../landing/writes.ts'
import { isForgotten, isHeld, unlessThisOne, type Generation } from './generations.ts'

const g = columnsOf(submitting.generations, 'g')
const generations = columnsOf(submitting.generations)

/**
 * Ends a submit that the provider refused for good. The submitter may try the same key again (spec, Idempotency rules).
 * If a caller was answered 202, the feed gets a change.
 */
export async function refused(
  db: Database,
  generation: Generation,
  { status, envelope, now }: { status: number; envelope: ErrorEnvelope; now: SQL },
): Promise<void> {
  await db.execute(sql`
    with ended as (
      update mediadock.generations g set ${generations.state} = 'refused', ${generations.next_attempt_at} = null,
        ${generations.answer_status} = ${status}, ${generations.answer} = ${JSON.stringify(envelope)}::jsonb,
          ${generations.last_error} = ${envelope.error.code},
        ${generations.in_doubt_from} = ${unlessThisOne}
      where ${isHeld(generation)} returning ${list(g, 'idempotency_key', 'promised')}
    )
    ${addChange(now, ofRefused(sql`promised`))}`)
}

/** The answer of an expired submit, in place of the provider's. */
const expiredEnvelope: ErrorEnvelope = {
  error: {
    type: 'api_error',
    code: 'submit_expired',
    message:
      'The provider gave no final answer within 23.5 hours. It may have charged for this submit: ' +
      'check there before you submit it again.',
  },
}

/** Ends submits without a final answer shortly before the provider forgets their keys. Each is a change in the feed. */
export async function expire(db: Database, now: SQL): Promise<void> {
  await db.execute(sql`
    with ended as (
      update mediadock.generations g set ${generations.state} = 'expired', ${generations.next_attempt_at} = null,
        ${generations.answer} = ${JSON.stringify(expiredEnvelope)}::jsonb
      where ${g.state} = 'pending' and ${isForgotten(now)}
      returning ${g.idempotency_key}
    )
    ${addChange(now, ofRefused(sql`true`))}`)
}

/** SQL for addChange(): the ended submits, each with its Idempotency-Key in the place of a request id. */
function ofRefused(condition: SQL): SQL {
  return sql`(
    select idempotency_key as request_id, 'REFUSED' as status, false as media_complete
    from ended where ${condition}) as refused`
}
