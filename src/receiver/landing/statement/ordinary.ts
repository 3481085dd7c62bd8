import { sql, type SQL } from 'drizzle-orm'
import { columnsOf, list } from '../../../runtime/postgres/columns.ts'
import * as schema from '../../domain/schema.ts'
import type { Landing } from '../landing.ts'
import { items } from './items.ts'
import { writeMedia } from './media.ts'
import { insertedRequest } from './requests.ts'
import { notifyReaders, settle } from './settling.ts'

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
export function ordinaryLandings(landings: readonly Landing[], at: SQL): SQL {
  const parts = [items(landings), ordinaryItems(at), writeOrdinary(at), ordinaryOutcomes(), writeMedia(), settle(at), notifyReaders()]
  return sql`with ${sql.join(parts, sql`, `)}`
}

/**
 * Whether the short way may take a landing, as far as the landing itself shows.
 * Where a delivery made us fetch the result, it was an OK: any other end contradicts it.
 */
export function mayBeOrdinary({ delivery, flags, confirmed, status }: Landing): boolean {
  return delivery?.claims !== undefined && flags.length === 0 && (!confirmed || status === 'COMPLETED')
}

/** `verdict`: the items that are ordinary, beside whether their request was tracked. */
function ordinaryItems(at: SQL): SQL {
  return sql`
    verdict as (
      select item.*, 'landed' as verdict, ${r.request_id} is not null as is_tracked,
        -- Only a sandbox key has signed it: it is polled at once.
        coalesce(item.next_poll_at, case when not confirmed and item.sandbox and ${r.request_id} is null then ${at} end) as poll_at
      from item
      left join lateral (select * from mediadock.requests where request_id = item.request_id limit 1) r on true
      where (${r.request_id} is null or (${r.landed_at} is null and ${r.confirmed_at} is null and ${r.key_name} = item.key_name
          and coalesce(${r.sandbox} = item.sandbox, true) and coalesce(${r.next_poll_at} > ${at}, true)))
        and (select 1 from mediadock.deliveries d where ${d.request_id} = item.request_id and ${d.id} <> item.delivery_id limit 1) is null
        and (select 1 from mediadock.deliveries d where ${d.id} between item.first_id and item.last_id and ${d.id} <> item.delivery_id limit 1) is null
    )`
}

/** `written`: as writeRequests() has them. What came up or changed since `verdict` looked is not written, and goes the long way. */
function writeOrdinary(at: SQL): SQL {
  return sql`
    written as (
      insert into mediadock.requests as r (${insertedRequest})
      select request_id, status, model, output, media_complete, cost, error_code, error_message, created_at, completed_at,
        source, case when confirmed then ${at} end, key_name, 'landed', sandbox, poll_at, ${at}, ${at}
      from verdict order by request_id
      on conflict (request_id) do update set
        status = excluded.status, model = coalesce(excluded.model, ${r.model}), output = excluded.output,
        media_complete = excluded.media_complete, cost = coalesce(excluded.cost, ${r.cost}),
        error_code = excluded.error_code, error_message = excluded.error_message,
        created_at = coalesce(excluded.created_at, ${r.created_at}), completed_at = coalesce(excluded.completed_at, ${r.completed_at}),
        source = excluded.source, confirmed_at = excluded.confirmed_at, sandbox = coalesce(excluded.sandbox, ${r.sandbox}),
        signed_sandbox = null, next_poll_at = excluded.next_poll_at, landed_at = excluded.landed_at,
        polled_at = coalesce(excluded.confirmed_at, ${r.polled_at}),
        poll_outcome = case when excluded.confirmed_at is not null then 'result' else ${r.poll_outcome} end,
        poll_detail = case when excluded.confirmed_at is null then ${r.poll_detail} end
      where ${r.request_id} = any(array(select request_id from verdict where is_tracked)) and ${r.landed_at} is null and ${r.confirmed_at} is null
        and ${r.key_name} = excluded.key_name and coalesce(${r.sandbox} = excluded.sandbox, true) and coalesce(${r.next_poll_at} > ${at}, true)
      returning ${list(r, 'request_id', 'status', 'model', 'output', 'media_complete', 'cost', 'error_code', 'error_message')},
        coalesce(${r.created_at}, ${r.tracked_at}) as created_at, ${list(r, 'completed_at', 'landed_at', 'source', 'key_name', 'sandbox')}
    )`
}

function ordinaryOutcomes(): SQL {
  return sql`outcome as (select verdict.*, 'landed' as outcome from verdict where request_id = any(array(select request_id from written)))`
}
