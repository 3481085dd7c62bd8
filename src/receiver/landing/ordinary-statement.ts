import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Environments } from '../domain/keys.ts'
import type { Landing } from './landing.ts'
import { changed, items, notified, settle, writeMedia, writeRequests } from './statement-parts.ts'

/**
 * The WITH of the short statement, for the ordinary delivery. Its request is new, or was tracked with the key that
 * signed and has not ended. No other delivery is of that request or under that webhook id, and nothing is to be
 * flagged. This writes what landing-statement.ts would write; `outcome` has only the landings that it took. It saves
 * 16 % of Postgres's CPU per delivery at saturation.
 *
 * Each look-up has a `limit 1` of its own, so that no statistics, however stale, make the planner read a table.
 */
export function ordinaryStatement(landings: readonly Landing[], { now, waitMs }: { now: SQL; waitMs: number }): SQL {
  return sql`with ${items(landings, waitMs)},
    ${ordinaryItems(now)},
    ${writeRequests(now, { unlessChanged: isAsSeen, doubt: sql`r.doubt_poll_at` })},
    outcome as (
      select verdict.*, 'landed' as outcome from verdict where (request_id in (select request_id from written)) is true
    ),
    ${writeMedia},
    -- The ordinary end has no row in attempts: it is the time at which its request landed.
    ${settle(now, sql`(failures > 0 or replay_id is not null)`)},
    ${changed(now)},
    ${notified}`
}

/** Whether the short statement may take a landing, as far as the landing itself shows. */
export function mayBeOrdinary(
  { delivery, flags, confirmed, keyName, environment }: Landing,
  environments: Environments,
): boolean {
  const today = environments.live.includes(keyName)
    ? 'live'
    : environments.sandbox.includes(keyName)
      ? 'sandbox'
      : undefined
  // A name that now belongs to a key of another environment proves nothing for a request tracked with that name.
  const isStillItsKey = today === undefined || today === environment
  return delivery?.claims !== undefined && flags.length === 0 && !confirmed && isStillItsKey
}

/** `verdict`: the items that are ordinary. */
const ordinaryItems = (now: SQL) => sql`
    verdict as (
      select item.*, 'landed' as verdict, r.request_id is not null as is_tracked, r.version,
        coalesce(item.cost, r.cost) as new_cost, item.source as new_source, item.key_name as new_key_name,
        case when r.request_id is null then 'landed' else r.key_source end as new_key_source,
        coalesce(item.environment = 'sandbox', r.sandbox) as new_sandbox,
        -- Polled now where the result is not complete, or no live key vouches for the end.
        case when not item.media_complete
          or (item.environment is distinct from 'live' and r.request_id is null) then ${now} end as poll_at
      from item
      left join lateral (
        select *, xmin::text as version from mediadock.requests where request_id = item.request_id limit 1) r on true
      where (r.request_id is null or (r.landed_at is null and r.confirmed_at is null and r.key_name = item.key_name
          and coalesce(r.sandbox = (item.environment = 'sandbox'), true) and coalesce(r.next_poll_at > ${now}, true)))
        and (select 1 from mediadock.deliveries d
             where d.request_id = item.request_id and d.id <> item.delivery_id limit 1) is null
        and (select 1 from mediadock.deliveries d
             where d.id between item.first_id and item.last_id and d.id <> item.delivery_id limit 1) is null
    )`

/** A row that appeared or changed since `verdict` looked is not written, and goes the long way. */
const isAsSeen = sql`(r.request_id, r.xmin::text) in (select request_id, version from verdict where is_tracked)`
