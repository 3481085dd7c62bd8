import { columnsOf, list } from '../../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../../platform/postgres/drizzle.ts'
import { maxParkedForKey } from '../../domain/delivery.ts'
import * as schema from '../../domain/schema.ts'

const requests = columnsOf(schema.requests)
const r = columnsOf(schema.requests, 'r')
const d = columnsOf(schema.deliveries, 'd')

/** One secret can sign any number of deliveries: however many raise doubt about a request, it is polled for them this often. */
const doubtIntervalSeconds = 60

function nextDoubt(at: SQL): SQL {
  return sql`greatest(${at}, ${r.polled_at} + make_interval(secs => ${doubtIntervalSeconds}))`
}

/** What is written of a request, in the order in which it is selected. */
const insertedRequest = list(
  requests,
  'request_id',
  'status',
  'model',
  'output',
  'media_complete',
  'cost',
  'error_code',
  'error_message',
  'created_at',
  'completed_at',
  'source',
  'confirmed_at',
  'key_name',
  'key_source',
  'sandbox',
  'next_poll_at',
  'tracked_at',
  'landed_at',
)

/** For the short way: no other delivery is of the request. */
export const doubtAsItIs = sql`${r.doubt_poll_at}`

/** For the long way: a delivery that is parked for its key was doubtful before the request landed, and still is. */
export function doubtOfParked(at: SQL): SQL {
  return sql`coalesce(${r.doubt_poll_at}, (
          select ${nextDoubt(at)} from mediadock.deliveries d where ${d.request_id} = ${r.request_id} and ${d.parked_reason} = 'key_mismatch' limit 1))`
}

/** For the long way: the row was there when `before` locked it. */
export const isAsLocked = sql`${r.request_id} in (select request_id from before) and ${r.confirmed_at} is null`

/** It stays beside the `sandbox` that tracking stored, until the provider has decided: see trackedSandbox of verdicts.ts. */
const signedSandbox = sql`case when excluded.confirmed_at is null
          and (${r.signed_sandbox} is not null or (${r.landed_at} is null and ${r.sandbox} is not null)) then excluded.sandbox end`

/**
 * `written`: the requests that landed or were confirmed, as they are now. Reads
 * `verdict`. A row that is there is only written over where `unlessChanged` holds:
 * what came up or changed since it was judged is not, and is missing here.
 * `doubt`: when an unconfirmed one is polled for doubt.
 */
export function writeRequests(at: SQL, { unlessChanged, doubt }: { unlessChanged: SQL; doubt: SQL }): SQL {
  return sql`
    written as (
      insert into mediadock.requests as r (${insertedRequest})
      select request_id, status, model, output, media_complete, new_cost, error_code, error_message,
        created_at, completed_at, new_source, case when confirmed then ${at} end, new_key_name, new_key_source, new_sandbox, poll_at, ${at}, ${at}
      from verdict where verdict in ('landed', 'confirmed') order by request_id
      on conflict (request_id) do update set
        status = excluded.status, model = coalesce(excluded.model, ${r.model}), output = excluded.output,
        media_complete = excluded.media_complete, cost = excluded.cost,
        error_code = excluded.error_code, error_message = excluded.error_message,
        created_at = coalesce(excluded.created_at, ${r.created_at}), completed_at = coalesce(excluded.completed_at, ${r.completed_at}),
        source = excluded.source, confirmed_at = excluded.confirmed_at, key_name = excluded.key_name, key_source = excluded.key_source,
        sandbox = excluded.sandbox, signed_sandbox = ${signedSandbox}, next_poll_at = excluded.next_poll_at,
        doubt_poll_at = case when excluded.confirmed_at is null then ${doubt} end,
        landed_at = coalesce(${r.landed_at}, excluded.landed_at),
        polled_at = coalesce(excluded.confirmed_at, ${r.polled_at}),
        poll_outcome = case when excluded.confirmed_at is not null then 'result' else ${r.poll_outcome} end,
        poll_detail = case when excluded.confirmed_at is null then ${r.poll_detail} end
      where ${unlessChanged}
      returning ${list(r, 'request_id', 'status', 'model', 'output', 'media_complete', 'cost', 'error_code', 'error_message')},
        coalesce(${r.created_at}, ${r.tracked_at}) as created_at, ${list(r, 'completed_at', 'landed_at', 'source', 'key_name', 'sandbox')}
    )`
}

/** Whether so many deliveries of the request of `verdict` are parked for their key that no more are kept. */
const isFullOfParked = sql`(
                    select count(*) >= ${maxParkedForKey} from (
                      select from mediadock.deliveries d
                      where ${d.request_id} = verdict.request_id and ${d.parked_reason} = 'key_mismatch' and ${d.id} <> verdict.delivery_id
                      limit ${maxParkedForKey}) as parked)`

/**
 * `outcome`: what came of each item (LandingOutcome), the state that stands now,
 * and whether the provider has confirmed it. Reads `verdict` and `written`.
 */
export function outcomes(): SQL {
  return sql`
    outcome as (
      select verdict.*,
             case when verdict in ('landed', 'confirmed') and written.request_id is null then 'raced'
                  when verdict = 'key_mismatch' and claims is not null and ${isFullOfParked} then 'discarded'
                  else verdict end as outcome,
             coalesce(written.status, verdict.old_status) as final_status,
             old_confirmed_at is not null or (confirmed and written.request_id is not null) as is_final
      from verdict left join written using (request_id)
    )`
}

/**
 * `doubted`: two webhooks that contradict each other, or keys of two
 * environments, make the reconciler ask at once, as the provider's own result
 * decides. Its schedule stays as it is. Reads `outcome`.
 */
export function pollTheDoubted(at: SQL): SQL {
  return sql`
    doubted as (
      update mediadock.requests r
      set ${requests.doubt_poll_at} = ${nextDoubt(at)}
      where ${r.request_id} = any(array(select request_id from outcome where outcome in ('contradiction', 'key_mismatch')))
        and ${r.confirmed_at} is null and ${r.doubt_poll_at} is null
    )`
}
