import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { claimsAnew } from '../../platform/postgres/lease.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { maxParkedForRequest } from '../domain/delivery.ts'
import type { Environment } from '../domain/environment.ts'
import { afterTracking } from '../domain/poll-schedule.ts'

export type TrackedBy = { environment: Environment | undefined; now: SQL }

/**
 * SQL: the part after `on conflict (request_id)` when a request is tracked whose row `r` exists, for example because
 * its webhook was faster. Missing values are filled in. A key of known environment also corrects the key and `sandbox`,
 * until the provider has confirmed the result. The request is polled at once if that contradicts the environment that was
 * known, or if it has a next poll and gets another key. A row of another source stays as it is, and is not returned.
 */
export function joinTracked(now: SQL): SQL {
  const corrects = sql`r.confirmed_at is null and excluded.sandbox is not null`
  const isRekeyed = sql`${corrects} and (coalesce(r.signed_sandbox, r.sandbox) <> excluded.sandbox
    or (r.next_poll_at is not null and r.key_name is distinct from excluded.key_name))`
  return sql`do update set
    model = coalesce(r.model, excluded.model), metadata = coalesce(r.metadata, excluded.metadata),
    external_id = coalesce(r.external_id, excluded.external_id),
    idempotency_key = coalesce(r.idempotency_key, excluded.idempotency_key),
    key_name = case when ${corrects} then excluded.key_name else coalesce(r.key_name, excluded.key_name) end,
    key_source = case when ${corrects} or (r.key_name is null and excluded.key_name is not null) then 'tracked'
      else r.key_source end,
    sandbox = case when ${corrects} then excluded.sandbox else r.sandbox end,
    ${afterTracking(now, isRekeyed)}
    where r.source_name is not distinct from excluded.source_name`
}

/**
 * Does the same as the two CTEs of requeueParked(), for a request that had a row. A landing that parked a delivery while
 * the row was joined is not in the snapshot of that statement.
 */
export async function requeueParkedOf(db: Database, requestId: string, by: TrackedBy): Promise<void> {
  await db.execute(sql`
    with tracked as (
      select request_id, confirmed_at is null as open from mediadock.requests where request_id = ${requestId}::uuid
    ),
    ${requeueParked(by)}
    select from tracked`)
}

/** SQL: two CTEs after `tracked`. Deliveries parked for the other environment are judged again. */
export function requeueParked({ environment, now }: TrackedBy): SQL {
  return sql`
    unparked as (
      update mediadock.deliveries d set parked_reason = null from (
        select id from mediadock.deliveries
        where request_id in (select request_id from tracked where open)
          and parked_reason = 'key_mismatch' and environment = ${environment ?? null}
        order by received_at limit ${maxParkedForRequest}
      ) p
      where d.id = p.id returning d.id
    ),
    requeued as (
      insert into mediadock.inbox (delivery_id, due_at, claims)
      select id, ${now}, ${claimsAnew} from unparked
      on conflict do nothing
    )`
}
