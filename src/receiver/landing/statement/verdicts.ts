import { columnsOf, list } from '../../../runtime/postgres/columns.ts'
import { sql, type SQL } from '../../../runtime/postgres/drizzle.ts'
import type { Environments } from '../../domain/keys.ts'
import * as schema from '../../domain/schema.ts'

const requests = columnsOf(schema.requests)

/**
 * `seen` and `before`: the requests of the items as this statement's snapshot
 * has them, and as they are once they are locked. Reads `item`.
 */
export function rowsAsTheyAre({ live, sandbox }: Environments): SQL {
  return sql`
    -- The rows as this statement's snapshot has them, and so its media; what is locked below may be newer.
    seen as (
      select ${list(requests, 'request_id', 'landed_at', 'confirmed_at')}, coalesce(${requests.signed_sandbox}, ${requests.sandbox}) as word
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
      )}, coalesce(${requests.signed_sandbox}, ${requests.sandbox}) as word,
             case when ${requests.key_name} = any(${sql.param([...live])}::text[]) then false
                  when ${requests.key_name} = any(${sql.param([...sandbox])}::text[]) then true end as key_sandbox
      from mediadock.requests where ${requests.request_id} = any(array(select request_id from item))
      order by ${requests.request_id} for update
    )`
}

/**
 * In a FROM: what of `written` landed. `is true` leaves the planner one way, a table of hashes that each row is looked
 * up in: it expects one row of each part, and as a join would compare all with all.
 */
export const writtenThatLanded = sql`written where (request_id in (select request_id from verdict where verdict = 'landed')) is true`

/**
 * `known`: each item beside what is known of its request, and whose word that
 * is. Reads `item`, `seen` and `before`.
 */
export function whatIsKnown(): SQL {
  return sql`
    known as (
      select item.*, before.request_id is not null as is_known, before.status as old_status, before.landed_at as old_landed_at, before.confirmed_at as old_confirmed_at,
             before.next_poll_at as old_next_poll_at,
             before.media_complete as old_media_complete, before.cost as old_cost, before.source as old_source,
             before.key_name as old_key_name, before.key_source as old_key_source, before.key_sandbox as old_key_sandbox, before.sandbox as old_sandbox,
             before.landed_at is not null and (seen.landed_at, seen.confirmed_at, seen.word) is distinct from (before.landed_at, before.confirmed_at, before.word) as is_newer,
             -- Of what stands: of the key that signed or knew it.
             case when before.landed_at is not null then before.word end as word,
             -- Of the request, where the provider or whoever tracked it named it.
             case when before.confirmed_at is not null then before.sandbox
                  when before.key_source is distinct from 'landed' and before.key_sandbox is not null then before.key_sandbox
                  when before.landed_at is null then before.sandbox end as own
      from item left join before using (request_id) left join seen using (request_id)
    )`
}

/**
 * `verdict`: what each item comes to, beside the rows as they are;
 * docs/orders.md is the table. Reads `known`.
 *
 * Who decides the environment of a request, from the strongest: the provider,
 * by a result that it gave to a key; the key that it was tracked with, where it
 * is configured; a webhook signed with a live key; one signed with a sandbox
 * key. A key without a known environment says nothing of it.
 */
export function verdicts(at: SQL): SQL {
  return sql`
    verdict as (
      select known.*,
        -- At once, however soon the rest of the result is waited for: what was due to be polled, for one by a webhook of the
        -- other environment, still is; and so is what another key signed than the configured one that it was tracked with.
        coalesce(least(next_poll_at, case when not confirmed and (corrects or old_next_poll_at <= ${at}
            or (old_key_source is distinct from 'landed' and old_key_sandbox is not null and old_key_name <> key_name)) then ${at} end),
          case when not confirmed and sandbox and own is null then ${at} end) as poll_at,
        coalesce(cost, case when not corrects then old_cost end) as new_cost,
        case when old_landed_at is null or old_status <> status or corrects then source else old_source end as new_source,
        case when takes_key then key_name else old_key_name end as new_key_name,
        case when takes_key then 'landed' else old_key_source end as new_key_source,
        coalesce(sandbox, own, old_sandbox) as new_sandbox,
        case
          when not is_known then 'landed'
          when is_newer then 'raced'
          -- What the reconciler brings is from the provider, whoever signed or tracked what.
          when delivery_id is not null and sandbox <> own then 'key_mismatch'
          when old_landed_at is null then 'landed'
          when old_confirmed_at is null and delivery_id is not null and sandbox <> word and sandbox and own is null then 'key_mismatch'
          when old_confirmed_at is null and (confirmed or sandbox <> word) then
            case when old_status = status and old_media_complete and not corrects then 'confirmed' else 'landed' end
          when status <> old_status then 'contradiction'
          else 'no_effect' end as verdict
      from (
        select known.*, coalesce(sandbox <> coalesce(word, own), false) as corrects,
          old_key_name is null or coalesce(sandbox <> coalesce(old_key_sandbox, case when old_key_source = 'landed' then word end), false) as takes_key
        from known
      ) as known
    )`
}
