import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { retryConflicts } from '../../platform/postgres/errors.ts'
import { lockWait } from '../../platform/postgres/lock-wait.ts'
import { maxParkedForRequest } from '../domain/delivery.ts'
import { toSandbox } from '../domain/environment.ts'
import { afterHint } from '../domain/poll-schedule.ts'
import type { Hint } from '../domain/report.ts'
import { requestIdOf } from '../domain/request-id.ts'
import * as schema from '../domain/schema.ts'
import type { LandingDeps } from './landing-deps.ts'
import { parkedOthers } from './refine-rulings.ts'
import type { StoredDelivery } from './report-to-land.ts'

const r = columnsOf(schema.requests, 'r')

/**
 * Makes sure that the request of a hint is tracked, and that its next poll is due now if the job may have ended. An
 * ended request that is not confirmed gets an extra poll. The delivery leaves the inbox with the outcome `hint`. A
 * request of another source is not touched, and the delivery is parked, or deleted if too many of the request are
 * parked already.
 */
export async function applyHint(deps: LandingDeps, delivery: StoredDelivery, { jobId, poll }: Hint): Promise<void> {
  const { db, time } = deps
  const { sourceName, keyName } = delivery
  const { requestId, externalId } = requestIdOf(sourceName, jobId)
  const now = time()
  await retryConflicts(() =>
    db.execute(sql`
    with lock_wait as materialized (${lockWait()}),
    ${dequeue(delivery)},
    tracked as (
      insert into mediadock.requests as r (request_id, source_name, external_id, key_name, key_source, sandbox,
        tracked_at, next_poll_at)
      select ${requestId}::uuid, ${sourceName}, ${externalId}, ${keyName}, 'landed',
        ${toSandbox(delivery.environment)}::boolean, ${now}, case when ${poll}::boolean then ${now} end
      from dequeued
      -- A known request is written too, if only with its own source, so that it is returned.
      on conflict (request_id) do update set
        ${poll ? afterHint(now) : sql`source_name = ${r.source_name}`}
      where ${r.source_name} is not distinct from excluded.source_name
      returning ${r.request_id}
    ),
    found as (
      select dequeued.*, tracked.request_id is null as is_foreign,
        tracked.request_id is null and ${delivery.claims !== undefined}::boolean and dequeued.replay_id is null
          and ${parkedOthers(sql`${requestId}::uuid`, sql`'source_mismatch'`, sql`dequeued.delivery_id`)}
            >= ${maxParkedForRequest}
          as is_one_too_many
      from dequeued left join tracked on true
    ),
    parked as (
      update mediadock.deliveries d set
        parked_reason = case when is_foreign then 'source_mismatch' end,
        flags = case when is_foreign and not 'source_mismatch' = any(d.flags)
          then d.flags || array['source_mismatch'] else d.flags end
      from found
      where d.id = found.delivery_id and not is_one_too_many and (is_foreign or d.parked_reason is not null)
    ),
    discarded as (
      delete from mediadock.deliveries d using found where d.id = found.delivery_id and is_one_too_many
    )
    insert into mediadock.attempts (delivery_id, attempted_at, outcome, detail, replay_id)
    select delivery_id, ${now}, case when is_foreign then 'source_mismatch' else 'hint' end,
      ${delivery.claims === undefined ? 'replay' : null}, replay_id
    from found where not is_one_too_many
    on conflict do nothing`),
  )
  if (poll) deps.onHint?.(keyName)
}

/**
 * SQL: `dequeued`, the delivery if its claim is still held. It leaves the inbox. A single replay has no claim. Reads
 * `lock_wait`, so that the wait of the later parts is bounded.
 */
function dequeue({ deliveryId, claims }: { deliveryId: string; claims: number | undefined }): SQL {
  const gone = sql`delete from mediadock.inbox i using lock_wait
      where i.delivery_id = ${deliveryId}::uuid and i.claims = coalesce(${claims ?? null}::int, i.claims)
      returning i.delivery_id, i.replay_id`
  if (claims !== undefined) return sql`dequeued as (${gone})`
  return sql`gone as (${gone}), dequeued as (
      select ${deliveryId}::uuid as delivery_id, null::uuid as replay_id from lock_wait)`
}
