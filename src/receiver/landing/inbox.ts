import { atMost } from '../../platform/postgres/at-most.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { notDurable } from '../../platform/postgres/durable.ts'
import { one } from '../../platform/postgres/errors.ts'
import { leaseOf } from '../../platform/postgres/lease.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { later } from '../../platform/postgres/time.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import { fromStored } from '../domain/environment.ts'
import type { ParkReason } from '../domain/report.ts'
import * as schema from '../domain/schema.ts'
import { pathHeader, pathIn } from '../domain/webhook-path.ts'
import type { Claimed } from './claimed.ts'

/*
 * The inbox: the table of the deliveries that are to be landed. `now` is the time that replicas share (time.ts).
 *
 * Rows that a list names are selected by an array (see parts-sql.ts): the statistics of the inbox are mostly those of
 * an empty table.
 */

export type InboxClaim = Pick<Claimed, 'deliveryId' | 'claims'>

/** With the body, which is no longer needed once it is parsed. */
export type ClaimedWithBody = Claimed & { body: Buffer }

/**
 * Short, so that another process lands the deliveries of a dead one within 10 s (docs/guarantees.md). Longer than
 * `flushSeconds` of intake/accept.ts, since the lease of a delivery is not renewed while it is being stored.
 */
export const inboxLeaseSeconds = 6
/**
 * A delivery that Postgres refuses this many times is parked: mostly for its content or a trigger, but a missing grant
 * counts too. Failures of the server and locks are never counted: the delivery is tried until it lands.
 */
export const maxFailures = 5
/** The limit of what pages show. */
const maxTroubleLength = 500
/** Doubles with each failure. The longest is 8 s, since the last failure parks. */
const retryPause = { baseMs: 1000, capMs: Infinity }

const lease = leaseOf('i', {
  key: { deliveryId: schema.inbox.delivery_id },
  due_at: schema.inbox.due_at,
  claims: schema.inbox.claims,
  failures: schema.inbox.failures,
  trouble: schema.inbox.trouble,
})

type ClaimedRow = RowOf<typeof schema.inbox, 'delivery_id' | 'claims' | 'failures'> &
  RowOf<typeof schema.deliveries, 'webhook_id' | 'source_name' | 'key_name' | 'environment' | 'body'> & {
    received_at: string | null
    traceparent: string | null
    path: string | null
  }

/**
 * Claims due deliveries, oldest first; other processes skip them. At most `limit` rows, and none after the one with
 * which the bodies reach `maxBytes`.
 */
export async function claimDeliveries(
  db: Database,
  { limit, maxBytes, now }: { limit: number; maxBytes: number; now: SQL },
): Promise<ClaimedWithBody[]> {
  const rows = await executePrepared<ClaimedRow>(
    db,
    sql`
    with due as (
      select i.delivery_id, i.due_at from mediadock.inbox i
      where ${lease.isDue(now)} order by i.due_at limit ${limit} for update skip locked
    ),
    -- Postgres stores the length of a large body in its row, so unclaimed bodies are not read.
    weighed as (
      select delivery_id, webhook_id, source_name, key_name, environment, received_at, body,
             headers ->> 'traceparent' as traceparent, headers ->> ${pathHeader} as path,
             coalesce(sum(octet_length(body)) over (
               order by due_at, delivery_id rows between unbounded preceding and 1 preceding), 0) as before
      from due left join lateral (select * from mediadock.deliveries d where d.id = due.delivery_id limit 1) d on true
    ),
    claimed as (
      update mediadock.inbox i set ${lease.claim(now, inboxLeaseSeconds)}
      where i.delivery_id = any(array(select delivery_id from weighed where before < ${maxBytes}))
      returning i.delivery_id, i.claims, i.failures, i.replay_id
    )
    select delivery_id, claims, failures, webhook_id, source_name, key_name, environment,
      case when replay_id is null then received_at end as received_at, traceparent, path, body
    from claimed join weighed using (delivery_id)
    -- A place whose delivery retention has deleted has no body (pruned by retention.ts). A lost claim is made again after
    -- its lease, so the commit need not wait for the disk.
    where body is not null and ${notDurable}`,
  )
  return rows.map((row) => ({
    deliveryId: row.delivery_id,
    claims: row.claims,
    failures: row.failures,
    webhookId: row.webhook_id,
    sourceName: row.source_name,
    keyName: row.key_name,
    environment: fromStored(row.environment),
    receivedAt: row.received_at === null ? undefined : new Date(row.received_at),
    traceparent: row.traceparent ?? undefined,
    idempotencyKey: row.path === null ? undefined : pathIn({ [pathHeader]: row.path }).idempotencyKey,
    body: row.body,
  }))
}

/** Renews the leases of claims that are still held. */
export async function renew(db: Database, held: readonly InboxClaim[], now: SQL): Promise<void> {
  await lease.renew(db, held, { now, seconds: inboxLeaseSeconds })
}

/**
 * Returns claims that ended without a failure of the delivery. Each delivery is due after its pause. Claims that are no
 * longer held are left alone. So are rows that another transaction locks, which become due when their leases expire.
 * `trouble` is the reason for the on-call engineer. No other record shows it while a delivery is retried forever.
 */
export async function returnClaims(
  db: Database,
  returned: readonly (InboxClaim & { pauseMs?: number })[],
  { now, trouble }: { now: SQL; trouble?: string | undefined },
): Promise<void> {
  const given = returned.map(({ deliveryId: id, claims, pauseMs = 0 }) => ({ id, claims, pause: pauseMs / 1000 }))
  await db.execute(sql`
    with given as materialized (
      select * from jsonb_to_recordset(${JSON.stringify(given)}::jsonb) as g (id uuid, claims integer, pause float8)
      limit ${atMost(given.length)}
    ),
    free as (
      select delivery_id, pause from given, lateral (
        select delivery_id from mediadock.inbox
        where delivery_id = given.id and claims = given.claims limit 1 for update skip locked) as unlocked
    )
    update mediadock.inbox i set due_at = ${later(now, sql`free.pause`)}, claims = i.claims + 1,
      trouble = coalesce(${trouble?.slice(0, maxTroubleLength) ?? null}, i.trouble)
    from free
    where i.delivery_id = any(array[free.delivery_id])
      and ${notDurable}`)
}

type Failure = { claimed: InboxClaim & Pick<Claimed, 'failures'>; detail: string; now: SQL }

/** Puts a delivery off after a failure of its own, with a growing pause. The fifth parks it. */
export async function putOffOrPark(
  db: Database,
  { claimed, detail, now }: Failure,
): Promise<'retry' | 'parked' | 'lost'> {
  const reason = 'landing_failed'
  const failures = claimed.failures + 1
  if (failures >= maxFailures) return (await park(db, { claimed, reason, detail, now })) ? 'parked' : 'lost'
  const trouble = `${reason}: ${detail}`
  const pauseSeconds = jitteredPauseMs(failures, retryPause, Math.random) / 1000
  const rows = await db.execute<{ n: number }>(sql`
    with returned as (
      update mediadock.inbox i
      set ${lease.putOff(now, { pauseSeconds, trouble: trouble.slice(0, maxTroubleLength) })}
      where ${lease.isHeld(claimed)} returning i.delivery_id
    ),
    noted as (
      insert into mediadock.attempts (delivery_id, attempted_at, outcome, detail)
      select delivery_id, ${now}, 'retry', ${trouble} from returned on conflict do nothing
    )
    select count(*)::int as n from returned`)
  return one(rows, `giving the delivery ${claimed.deliveryId} back`).n > 0 ? 'retry' : 'lost'
}

/** Removes a delivery from the inbox and parks it. Returns false, with nothing written, if the claim was lost. */
export async function park(
  db: Database,
  { claimed, reason, detail, now }: { claimed: InboxClaim; reason: ParkReason; detail: string; now: SQL },
): Promise<boolean> {
  const rows = await db.execute<{ n: number }>(sql`
    with taken as (
      delete from mediadock.inbox i where ${lease.isHeld(claimed)} returning i.delivery_id, i.replay_id
    ),
    parked as (
      update mediadock.deliveries d set parked_reason = ${reason} from taken where d.id = taken.delivery_id
    ),
    noted as (
      insert into mediadock.attempts (delivery_id, attempted_at, outcome, detail, replay_id)
      select delivery_id, ${now}, 'parked', ${`${reason}: ${detail}`}, replay_id from taken on conflict do nothing
    )
    select count(*)::int as n from taken`)
  return one(rows, `parking the delivery ${claimed.deliveryId}`).n > 0
}
