import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { ErrorEnvelope } from '../../wire/schemas.ts'
import { defaultPageItems } from '../domain/page-limits.ts'
import { addChange } from '../feeding/add-change.ts'
import { isForgotten, isHeld, unlessThisOne, type Generation } from './generations.ts'

/** Ends a submit that the provider refused. If a caller was answered 202, the feed gets a change. */
export async function refused(
  db: Database,
  generation: Generation,
  { status, envelope, now }: { status: number; envelope: ErrorEnvelope; now: SQL },
): Promise<void> {
  await db.execute(sql`
    with ended as (
      update mediadock.generations g set state = 'refused', next_attempt_at = null, refused_at = ${now},
        answer_status = ${status}, answer = ${JSON.stringify(envelope)}::jsonb, last_error = ${envelope.error.code},
        in_doubt_from = ${unlessThisOne}
      where ${isHeld(generation)} returning g.idempotency_key, g.promised
    )
    ${addChange(now, ofRefused(sql`promised`))}`)
}

export type RefusedSubmits = { keyName: string; status: number; code: string; count: number; lastAt: string }

/** Counts the submits that were refused within the last hour and not submitted since, the most frequent first. */
export async function readRefusedSubmits(tx: Executor, now: Date): Promise<RefusedSubmits[]> {
  const rows = await tx.execute<{ key_name: string; status: number; code: string; n: number; at: string }>(sql`
    select g.key_name, g.answer_status as status, left(g.last_error, 60) as code, count(*)::int as n,
      max(g.refused_at) as at
    from mediadock.generations g
    where g.state = 'refused' and g.refused_at > ${now.toISOString()}::timestamptz - interval '1 hour'
    group by 1, 2, 3 order by n desc, 1, 2, 3 limit 100`)
  return rows.map(({ key_name: keyName, n, at, ...row }) => {
    return { ...row, keyName, count: n, lastAt: new Date(at).toISOString() }
  })
}

/** A submit that the provider refused, with the provider's reason and the beginning of its metadata. */
export type RefusedSubmit = Pick<Generation, 'idempotency_key' | 'model' | 'key_name'> & {
  refused_at: string
  status: number
  code: string | null
  message: string | null
  metadata: string | null
}

/** Lists the submits that were refused within the last hour and not submitted since, newest first. */
export async function listRefusedSubmits(tx: Executor, now: Date): Promise<RefusedSubmit[]> {
  const rows = await tx.execute<RefusedSubmit>(sql`
    select g.idempotency_key, g.model, g.key_name, g.refused_at, g.answer_status as status,
      left(g.last_error, 60) as code, left(g.answer #>> '{error,message}', 200) as message,
      left(mediadock.readable_metadata(g.metadata)::text, 200) as metadata
    from mediadock.generations g
    where g.state = 'refused' and g.refused_at > ${now.toISOString()}::timestamptz - interval '1 hour'
    order by g.refused_at desc limit ${defaultPageItems}`)
  return rows.map((row) => ({ ...row, refused_at: new Date(row.refused_at).toISOString() }))
}

const expiredEnvelope: ErrorEnvelope = {
  error: {
    type: 'api_error',
    code: 'submit_expired',
    message:
      'The provider gave no final answer within 23.5 hours. It may have charged for this submit: ' +
      'check there before you submit it again.',
  },
}

/** Ends submits before the provider forgets their Idempotency-Keys. Each is a change of the feed. */
export async function expire(db: Database, now: SQL): Promise<void> {
  await db.execute(sql`
    with ended as (
      update mediadock.generations g set state = 'expired', next_attempt_at = null,
        answer = ${JSON.stringify(expiredEnvelope)}::jsonb
      where g.state = 'pending' and ${isForgotten(now)}
      returning g.idempotency_key
    )
    ${addChange(now, ofRefused(sql`true`))}`)
}

/** SQL for addChange(): the ended submits, each with its Idempotency-Key in the place of a request id. */
function ofRefused(condition: SQL): SQL {
  return sql`(
    select idempotency_key as request_id, 'REFUSED' as status, false as media_complete
    from ended where ${condition}) as refused`
}
