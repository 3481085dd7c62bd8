import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import type { SignedEnvironment } from '../domain/keys.ts'
import * as schema from '../domain/schema.ts'

const attempts = columnsOf(schema.attempts)
const deliveries = columnsOf(schema.deliveries)
const inbox = columnsOf(schema.inbox)

/** A delivery that this worker holds until the lease ends; `claims` proves it when settling. */
export type Claimed = {
  deliveryId: string
  claims: number
  failures: number
  webhookId: string
  keyName: string
  /** Of that key when the delivery was accepted; undefined on rows of releases that did not store it. */
  environment: SignedEnvironment | undefined
  /** Undefined for a replay: the time since then says nothing of how long landing takes. */
  receivedAt: Date | undefined
  /** As the provider sent it with it, if it did. */
  traceparent?: string | undefined
  body: Buffer
}

/** Short, so that what a dead process held is soon landed by another; whoever holds something longer renews it. */
export const leaseSeconds = 6
/** A delivery that fails this often for a reason of its own is parked. */
export const maxFailures = 5
const maxTroubleLength = 500
const retryPause = { baseMs: 1000, capMs: 60_000 }

/** A delivery's place in the queue, with the number that proves the claim. */
export type Claim = Pick<Claimed, 'deliveryId' | 'claims'>

/**
 * Takes due deliveries for this worker, the oldest first; other workers skip them. No
 * more than `limit`, and none after the one with which the bodies reach
 * `maxBytes`: what is claimed is held in memory.
 */
export async function claim(
  db: Database,
  { limit, maxBytes, now }: { limit: number; maxBytes: number; now: Date },
): Promise<Claimed[]> {
  const rows = await executePrepared<
    RowOf<typeof schema.inbox, 'delivery_id' | 'claims' | 'failures'> &
      RowOf<typeof schema.deliveries, 'webhook_id' | 'key_name' | 'environment' | 'body'> & {
        received_at: string | null
        traceparent: string | null
      }
  >(
    db,
    sql`
    with due as (
      select ${list(inbox, 'delivery_id', 'due_at')} from mediadock.inbox
      where ${inbox.due_at} <= ${now.toISOString()}::timestamptz
      order by ${inbox.due_at} limit ${limit}
      for update skip locked
    ),
    -- The length of a body that is kept apart from its row stands in the row: none is read that is not taken.
    weighed as (
      select delivery_id, ${list(deliveries, 'webhook_id', 'key_name', 'environment', 'received_at', 'body')},
             ${deliveries.headers} ->> 'traceparent' as traceparent,
             coalesce(sum(octet_length(${deliveries.body})) over (order by due_at, delivery_id rows between unbounded preceding and 1 preceding), 0) as before
      from due left join lateral (select * from mediadock.deliveries where ${deliveries.id} = due.delivery_id limit 1) as deliveries on true
    ),
    claimed as (
      update mediadock.inbox
      set ${inbox.due_at} = ${now.toISOString()}::timestamptz + make_interval(secs => ${leaseSeconds}), ${inbox.claims} = inbox.${inbox.claims} + 1
      where ${inbox.delivery_id} = any(array(select delivery_id from weighed where before < ${maxBytes}))
      returning ${list(inbox, 'delivery_id', 'claims', 'failures', 'replay_id')}
    )
    select delivery_id, claims, failures, webhook_id, key_name, environment,
      case when replay_id is null then received_at end as received_at, traceparent, body
    from claimed join weighed using (delivery_id)
    -- A lost claim is only taken again when its lease ends, so it need not wait for the disk.
    where body is not null and set_config('synchronous_commit', 'off', true) = 'off'`,
  )
  return rows.map((row) => ({
    deliveryId: row.delivery_id,
    claims: row.claims,
    failures: row.failures,
    webhookId: row.webhook_id,
    keyName: row.key_name,
    environment: row.environment ?? undefined,
    receivedAt: row.received_at === null ? undefined : new Date(row.received_at),
    traceparent: row.traceparent ?? undefined,
    body: row.body,
  }))
}

/*
 * Below, rows of the inbox are looked up one by one (an array of one, see landing-statement.ts), whatever
 * is known of an inbox that is empty most of the time.
 */

/** Holds claims for another lease; those that ended meanwhile, or are another's by now, stay as they are. */
export async function renew(db: Database, claims: readonly Claim[], now: Date): Promise<void> {
  await db.execute(sql`
    with c as materialized (
      select * from unnest(${sql.param(claims.map(({ deliveryId }) => deliveryId))}::uuid[], ${sql.param(claims.map((claim) => claim.claims))}::int[]) as c (id, claims)
    )
    update mediadock.inbox set ${inbox.due_at} = ${now.toISOString()}::timestamptz + make_interval(secs => ${leaseSeconds})
    from c
    where inbox.${inbox.delivery_id} = any(array[c.id]) and inbox.${inbox.claims} = c.claims`)
}

/**
 * Puts claims that nothing came of back to where they were, for whoever comes first:
 * now, or each at its own time. Those that ended meanwhile stay ended. `trouble` says
 * why, to the on-call: nothing else tells of a delivery that is tried for ever.
 */
export async function giveBack(
  db: Database,
  claims: readonly (Claim & { dueAt?: Date })[],
  { now, trouble }: { now: Date; trouble?: string },
): Promise<void> {
  await db.execute(sql`
    with c as materialized (
      select * from unnest(${sql.param(claims.map(({ deliveryId }) => deliveryId))}::uuid[], ${sql.param(claims.map((claim) => claim.claims))}::int[],
        ${sql.param(claims.map(({ dueAt }) => (dueAt ?? now).toISOString()))}::text[]::timestamptz[]) as c (id, claims, due_at)
    )
    update mediadock.inbox set ${inbox.due_at} = c.due_at, ${inbox.trouble} = coalesce(${trouble?.slice(0, maxTroubleLength) ?? null}, ${inbox.trouble})
    from c
    where inbox.${inbox.delivery_id} = any(array[c.id]) and inbox.${inbox.claims} = c.claims and set_config('synchronous_commit', 'off', true) = 'off'`)
}

/** No lease, retry or turn (`maxDeferMs` of worker.ts) ends later; what seems to was written by a clock that was wrong. */
const furthestAheadSeconds = 330
const maxStrays = 1000

/**
 * Brings back what a process has put off for far too long, since its clock was
 * ahead: whatever became of that process, it is due now. One clock decides it,
 * that of Postgres: a process whose own is wrong takes nothing from the others.
 */
export async function bringBackStrays(db: Database): Promise<{ more: boolean }> {
  const rows = await db.execute<{ n: number }>(sql`
    with strays as (
      select ${inbox.delivery_id} from mediadock.inbox
      where ${inbox.due_at} > now() + make_interval(secs => ${furthestAheadSeconds})
      limit ${maxStrays} for update skip locked
    ),
    back as (
      update mediadock.inbox set ${inbox.due_at} = now() where ${inbox.delivery_id} = any(array(select delivery_id from strays)) returning 1
    )
    select count(*)::int as n from back`)
  return { more: one(rows, 'bringing back what was put off for too long').n === maxStrays }
}

export type Failure = { claimed: Claim & Pick<Claimed, 'failures'>; reason: string; detail: string; now: Date }

/**
 * Gives a delivery back after a failure of its own, later each time, and parks
 * it after the fifth. Changes nothing when the claim is no longer ours.
 */
export async function retryOrPark(
  db: Database,
  { claimed, reason, detail, now }: Failure,
): Promise<'retry' | 'parked' | 'lost'> {
  const failures = claimed.failures + 1
  if (failures >= maxFailures) return (await park(db, { claimed, reason, detail, now })) ? 'parked' : 'lost'
  const dueAt = new Date(now.getTime() + jitteredPauseMs(failures, retryPause, Math.random))
  const rows = await db.execute<{ n: number }>(sql`
    with returned as (
      update mediadock.inbox set ${inbox.due_at} = ${dueAt.toISOString()}::timestamptz, ${inbox.failures} = ${failures}
      where ${inbox.delivery_id} = ${claimed.deliveryId} and ${inbox.claims} = ${claimed.claims}
      returning ${inbox.delivery_id}
    ),
    noted as (
      insert into mediadock.attempts (${list(attempts, 'delivery_id', 'attempted_at', 'outcome', 'detail')})
      select delivery_id, ${now.toISOString()}::timestamptz, 'retry', ${`${reason}: ${detail}`} from returned
      on conflict do nothing
    )
    select count(*)::int as n from returned`)
  return one(rows, `giving the delivery ${claimed.deliveryId} back`).n > 0 ? 'retry' : 'lost'
}

/** Takes a delivery out of the queue for the on-call, with its reason. Answers whether the claim was still ours. */
export async function park(db: Database, { claimed, reason, detail, now }: Failure): Promise<boolean> {
  const rows = await db.execute<{ n: number }>(sql`
    with taken as (
      delete from mediadock.inbox where ${inbox.delivery_id} = ${claimed.deliveryId} and ${inbox.claims} = ${claimed.claims}
      returning ${list(inbox, 'delivery_id', 'replay_id')}
    ),
    parked as (
      update mediadock.deliveries set ${deliveries.parked_reason} = ${reason} from taken where ${deliveries.id} = taken.delivery_id
    ),
    noted as (
      insert into mediadock.attempts (${list(attempts, 'delivery_id', 'attempted_at', 'outcome', 'detail', 'replay_id')})
      select delivery_id, ${now.toISOString()}::timestamptz, 'parked', ${`${reason}: ${detail}`}, replay_id from taken
      on conflict do nothing
    )
    select count(*)::int as n from taken`)
  return one(rows, `parking the delivery ${claimed.deliveryId}`).n > 0
}
