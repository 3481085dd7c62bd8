import { columnsOf } from '../../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../../platform/postgres/drizzle.ts'
import type { Environments } from '../../domain/keys.ts'
import * as schema from '../../domain/schema.ts'
import type { Landing } from '../landing.ts'
import { noteChanges } from './changes.ts'
import { items } from './items.ts'
import { writeMedia } from './media.ts'
import { doubtAsItIs, writeRequests } from './requests.ts'
import { endAfterFailure, notifyReaders, settle } from './settling.ts'

const d = columnsOf(schema.deliveries, 'd')
const r = columnsOf(schema.requests, 'r')

/**
 * The short way for what nearly every delivery is: its request is new, or was
 * tracked with the key that signed and has not ended; no other delivery is of
 * that request or under that webhook id; nothing is to be flagged. It writes what
 * the long way would, and leaves out all else: `outcome` has only what it landed.
 *
 * Each look-up is one of its own (`limit 1`), so that no statistics, however
 * stale, make the planner read a table for a handful of rows.
 */
export function ordinaryLandings(landings: readonly Landing[], at: SQL, waitMs: number): SQL {
  const parts = [
    items(landings, waitMs),
    ordinaryItems(at),
    writeRequests(at, { unlessChanged: isAsSeen, doubt: doubtAsItIs }),
    ordinaryOutcomes(),
    // A request that has not ended has none that could be overruled.
    writeMedia(),
    settle(at, endAfterFailure),
    noteChanges(at),
    notifyReaders(),
  ]
  return sql`with ${sql.join(parts, sql`, `)}`
}

/**
 * Whether the short way may take a landing, as far as the landing itself shows.
 * Where a delivery made us fetch the result, it was an OK: any other end contradicts it.
 */
export function mayBeOrdinary(
  { delivery, flags, confirmed, status, keyName, environment }: Landing,
  environments: Environments,
): boolean {
  const today = environments.live.includes(keyName)
    ? 'live'
    : environments.sandbox.includes(keyName)
      ? 'sandbox'
      : undefined
  // A name that now belongs to a key of another environment says nothing of the request that was tracked with it.
  const isStillItsKey = today === undefined || today === environment
  return delivery?.claims !== undefined && flags.length === 0 && (!confirmed || status === 'COMPLETED') && isStillItsKey
}

/** `verdict`: the items that are ordinary, beside whether their request was tracked. */
function ordinaryItems(at: SQL): SQL {
  return sql`
    verdict as (
      select item.*, 'landed' as verdict, ${r.request_id} is not null as is_tracked, r.version,
        coalesce(item.cost, ${r.cost}) as new_cost, item.source as new_source, item.key_name as new_key_name,
        case when ${r.request_id} is null then 'landed' else ${r.key_source} end as new_key_source, coalesce(item.sandbox, ${r.sandbox}) as new_sandbox,
        -- No live key stands behind it: it is polled at once.
        coalesce(item.next_poll_at, case when not confirmed and item.sandbox is distinct from false and ${r.request_id} is null then ${at} end) as poll_at
      from item
      left join lateral (select *, xmin::text as version from mediadock.requests where request_id = item.request_id limit 1) r on true
      where (${r.request_id} is null or (${r.landed_at} is null and ${r.confirmed_at} is null and ${r.key_name} = item.key_name
          and coalesce(${r.sandbox} = item.sandbox, true) and coalesce(${r.next_poll_at} > ${at}, true)))
        and (select 1 from mediadock.deliveries d where ${d.request_id} = item.request_id and ${d.id} <> item.delivery_id limit 1) is null
        and (select 1 from mediadock.deliveries d where ${d.id} between item.first_id and item.last_id and ${d.id} <> item.delivery_id limit 1) is null
    )`
}

/** What came up or changed since `verdict` looked is not written, and goes the long way. */
const isAsSeen = sql`(${r.request_id}, r.xmin::text) in (select request_id, version from verdict where is_tracked)`

/** `is true`: see writtenThatLanded. */
function ordinaryOutcomes(): SQL {
  return sql`outcome as (select verdict.*, 'landed' as outcome from verdict where (request_id in (select request_id from written)) is true)`
}
