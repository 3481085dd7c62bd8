import { columnsOf, list } from '../../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../../platform/postgres/drizzle.ts'
import type { Environments } from '../../domain/keys.ts'
import * as schema from '../../domain/schema.ts'

const requests = columnsOf(schema.requests)

/** The environment of the key that signed, or knew, the result that a row of `requests` holds. */
const resultSandbox = sql`coalesce(${requests.signed_sandbox}, ${requests.sandbox})`

/**
 * The environment that tracking stored in a row of `requests`; null where none is known. Later changes of the keys do not
 * change it. In a row that has landed `signed_sandbox` shows that `sandbox` was there before, from tracking.
 */
const trackedSandbox = sql`case when ${requests.landed_at} is null or ${requests.signed_sandbox} is not null then ${requests.sandbox} end`

/**
 * `seen` and `before`: the requests of the items as this statement's snapshot
 * has them, and as they are once they are locked. Reads `item`.
 */
export function rowsAsTheyAre({ live, sandbox }: Environments): SQL {
  return sql`
    -- The rows as this statement's snapshot has them, and so its media; what is locked below may be newer.
    seen as (
      select ${list(requests, 'request_id', 'landed_at', 'confirmed_at')}, ${resultSandbox} as result_sandbox
      from mediadock.requests where ${requests.request_id} = any(array(select request_id from item))
    ),
    before as (
      select ${list(
        requests,
        'request_id',
        'status',
        'landed_at',
        'confirmed_at',
        'next_poll_at',
        'media_complete',
        'cost',
        'source',
        'key_name',
        'key_source',
        'sandbox',
      )}, ${resultSandbox} as result_sandbox, ${trackedSandbox} as tracked_sandbox,
             case when ${requests.key_name} = any(${sql.param([...live])}::text[]) then false
                  when ${requests.key_name} = any(${sql.param([...sandbox])}::text[]) then true end as key_sandbox
      from mediadock.requests where ${requests.request_id} = any(array(select request_id from item))
      order by ${requests.request_id} for update
    )`
}

/**
 * In a FROM: the rows of `written` that landed. `is true` leaves the planner one way, a table of hashes that each row is looked
 * up in: it expects one row of each part, and as a join would compare all with all.
 */
export const writtenThatLanded = sql`written where (request_id in (select request_id from verdict where verdict = 'landed')) is true`

/**
 * `known`: each item beside the row of its request (`old_…`), and three environments, each true for sandbox and
 * null where it is not known: `sandbox` of the item, `result_sandbox` of the result that the row holds, and
 * `request_sandbox` of the request. Reads `item`, `seen` and `before`.
 */
export function whatIsKnown(): SQL {
  return sql`
    known as (
      select item.*, before.request_id is not null as is_known, before.status as old_status, before.landed_at as old_landed_at, before.confirmed_at as old_confirmed_at,
             before.next_poll_at as old_next_poll_at,
             before.media_complete as old_media_complete, before.cost as old_cost, before.source as old_source,
             before.key_name as old_key_name, before.key_source as old_key_source, before.key_sandbox as old_key_sandbox, before.sandbox as old_sandbox,
             before.landed_at is not null
               and (seen.landed_at, seen.confirmed_at, seen.result_sandbox) is distinct from (before.landed_at, before.confirmed_at, before.result_sandbox) as is_newer,
             case when before.landed_at is not null then before.result_sandbox end as result_sandbox,
             -- As the provider confirmed it, as it was stored when the request was tracked, or by the key that it was tracked with.
             case when before.confirmed_at is not null or before.tracked_sandbox is not null then before.sandbox
                  when before.key_source is distinct from 'landed' and before.key_sandbox is not null then before.key_sandbox end as request_sandbox
      from item left join before using (request_id) left join seen using (request_id)
    )`
}

/**
 * Whether the key of an item (a row of `known`) is of another environment than its request. A key whose environment is
 * unknown cannot prove that it is of the right one, and so counts as another: unless the request is confirmed, which no
 * webhook can change, or was tracked with this very key and its environment stored then.
 */
const isOfOtherEnvironment = sql`(sandbox <> request_sandbox
            or (sandbox is null and request_sandbox is not null and old_confirmed_at is null and (old_key_name <> key_name or old_key_sandbox is not null)))`

/**
 * `verdict`: the outcome of each item, beside the rows as they are;
 * docs/orders.md is the table. Reads `known`.
 *
 * These decide the environment of a request, from the strongest: the provider,
 * by a result that it gave to a key; the key that the request was tracked with, where that
 * is configured; a webhook signed with a live key; a webhook signed with a sandbox
 * key. A key of unknown environment decides nothing.
 */
export function verdicts(at: SQL): SQL {
  return sql`
    verdict as (
      select known.*,
        -- At once, however soon the rest of the result is expected, in three cases: the environment changes, a poll is
        -- due, or another key signed than the configured one that the request was tracked with.
        coalesce(least(next_poll_at, case when not confirmed and (changes_environment or old_next_poll_at <= ${at}
            or (old_key_source is distinct from 'landed' and old_key_sandbox is not null and old_key_name <> key_name)) then ${at} end),
          -- No live key stands behind it.
          case when not confirmed and sandbox is distinct from false and request_sandbox is null then ${at} end) as poll_at,
        coalesce(cost, case when not changes_environment then old_cost end) as new_cost,
        case when old_landed_at is null or old_status <> status or changes_environment then source else old_source end as new_source,
        case when replaces_key then key_name else old_key_name end as new_key_name,
        case when replaces_key then 'landed' else old_key_source end as new_key_source,
        coalesce(sandbox, request_sandbox, old_sandbox) as new_sandbox,
        case
          when not is_known then 'landed'
          when is_newer then 'raced'
          -- The reconciler's results have no delivery: they are the provider's own, whichever key signed or tracked before.
          when delivery_id is not null and ${isOfOtherEnvironment} then 'key_mismatch'
          when old_landed_at is null then 'landed'
          when old_confirmed_at is null and delivery_id is not null and sandbox <> result_sandbox and sandbox and request_sandbox is null then 'key_mismatch'
          when old_confirmed_at is null and (confirmed or sandbox <> result_sandbox) then
            case when old_status = status and old_media_complete and not changes_environment then 'confirmed' else 'landed' end
          when status <> old_status then 'contradiction'
          else 'no_effect' end as verdict
      from (
        select known.*, coalesce(sandbox <> coalesce(result_sandbox, request_sandbox), false) as changes_environment,
          old_key_name is null or coalesce(sandbox <> coalesce(old_key_sandbox, case when old_key_source = 'landed' then result_sandbox end), false) as replaces_key
        from known
      ) as known
    )`
}
