import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Environments } from '../domain/keys.ts'
import type { Landing } from './landing.ts'
import { changed, items, notified, settle, writeMedia, writeRequests } from './statement-parts.ts'

/**
 * SQL: the WITH of the short statement, for ordinary deliveries. The request is new, or was tracked with the key that
 * signed and has not ended. The request and the webhook id have no other delivery, and nothing is to be flagged. It
 * writes what landing-statement.ts would write, with less work. `outcome` contains only the landings that it took.
 *
 * Each look-up has its own `limit 1`, so that outdated statistics never make the planner scan a table.
 */
export function ordinaryStatement(landings: readonly Landing[], { now, waitMs }: { now: SQL; waitMs: number }): SQL {
  return sql`with ${items(landings, waitMs)},
    ${ordinaryItems(now)},
    ${writeRequests(now, { unlessChanged: isAsSeen, doubt: sql`r.doubt_poll_at` })},
    outcome as (
      select verdict.*, 'landed' as actual_outcome from verdict
      where (request_id in (select request_id from written)) is true
    ),
    ${writeMedia},
    -- An ordinary landing has no row in attempts: the time of the landing is that of its request.
    ${settle(now, sql`(failures > 0 or replay_id is not null)`)},
    ${changed(now)},
    ${notified}`
}

/** Returns false if the landing alone shows that it needs the whole statement. */
export function mayBeOrdinary(
  { delivery, flags, confirmed, keyName, environment }: Landing,
  environments: Environments,
): boolean {
  const today = environments.live.includes(keyName)
    ? 'live'
    : environments.sandbox.includes(keyName)
      ? 'sandbox'
      : undefined
  // If the name now belongs to a key of another environment, the key of a request tracked with it is uncertain.
  const isStillItsKey = today === undefined || today === environment
  return delivery?.claims !== undefined && flags.length === 0 && !confirmed && isStillItsKey
}

/** SQL: `verdict` with the ordinary items alone. The whole statement lands the others. */
const ordinaryItems = (now: SQL) => sql`
    verdict as (
      select item.*, 'landed' as planned_outcome, r.request_id is not null as is_tracked, r.version,
        coalesce(item.cost, r.cost) as new_cost, item.source as new_source, item.key_name as new_key_name,
        case when r.request_id is null then 'landed' else r.key_source end as new_key_source,
        coalesce(item.environment = 'sandbox', r.sandbox) as new_sandbox,
        -- Polled now if the result is not complete, or no live key has signed for the end.
        case when not item.media_complete
          or (item.environment is distinct from 'live' and r.request_id is null) then ${now}
          -- A hint made the row. Its poll may be under way, and may end without an answer.
          when r.key_source = 'landed' then r.next_poll_at end as poll_at
      from item
      left join lateral (
        select *, xmin::text as version from mediadock.requests where request_id = item.request_id limit 1) r on true
      where (r.request_id is null or (r.landed_at is null and r.confirmed_at is null and r.key_name = item.key_name
          and r.source_name is not distinct from item.source_name
          and coalesce(r.sandbox = (item.environment = 'sandbox'), true) and coalesce(r.next_poll_at > ${now}, true)))
        and (select 1 from mediadock.deliveries d
             where d.request_id = item.request_id and d.id <> item.delivery_id limit 1) is null
        and (select 1 from mediadock.deliveries d
             where d.id between item.first_id and item.last_id and d.id <> item.delivery_id limit 1) is null
    )`

/** SQL condition: the row has not changed since `verdict` read it. Other rows are left to the whole statement. */
const isAsSeen = sql`(r.request_id, r.xmin::text) in (select request_id, version from verdict where is_tracked)`
