import { columnsOf, list, selected } from '../../platform/postgres/columns.ts'
import { sql, type SQL, type StringChunk } from '../../platform/postgres/drizzle.ts'
import type { Environments } from '../domain/keys.ts'
import * as schema from '../domain/schema.ts'
import { besides, carried, decided, derived, item, read, row as r } from './parts.ts'

/*
 * The rules that decide between a landing (`item`) and the row of its request (`r`): docs/orders.md is the table. Each
 * rule is one SQL expression, named for what it decides.
 *
 * An environment is 'live', 'sandbox', or null where it is unknown. A landing meets up to four: `environment` of the
 * key that signed or fetched it; `result_environment` of the result that the row holds; `request_environment` of the
 * request as the provider or its tracking decided it; and `key_environment` of the key in the row, as it is configured
 * now.
 */

const requests = columnsOf(schema.requests)

const environmentOf = (sandbox: SQL | StringChunk) =>
  sql`case ${sandbox} when true then 'sandbox' when false then 'live' end`

/** SQL: the environment of the key of a row, as it is configured now. */
export const todaysEnvironment = ({ live, sandbox }: Environments) => sql`case
               when key_name = any(${sql.param([...live])}::text[]) then 'live'
               when key_name = any(${sql.param([...sandbox])}::text[]) then 'sandbox' end`

/**
 * SQL: the environment of a request is decided by the first of these that applies:
 *
 * 1. the provider, by the key to which it gives the result
 * 2. tracking, which stored it, so later changes of the keys do not change it: in a row that has landed,
 *    `signed_sandbox` shows that `sandbox` came from tracking
 * 3. the key with which the request was tracked, if that is configured
 *
 * Otherwise it is open, and the result goes by its signature: a live key before a sandbox key. A key of unknown
 * environment decides nothing.
 */
const requestEnvironment = (keyEnvironment: SQL) => sql`case
            when ${requests.confirmed_at} is not null then ${environmentOf(requests.sandbox)}
            when ${requests.sandbox} is not null
              and (${requests.landed_at} is null or ${requests.signed_sandbox} is not null)
              then ${environmentOf(requests.sandbox)}
            when ${requests.key_source} is distinct from 'landed' then ${keyEnvironment} end`

/** SQL: the columns of `r`. */
const rowOfRequest = (keyEnvironment: SQL) => sql`
        select ${list(requests, ...read)}, ${selected(derived, {
          version: sql`xmin::text`,
          key_environment: keyEnvironment,
          result_environment: sql`case when ${requests.landed_at} is not null
            then ${environmentOf(sql`coalesce(${requests.signed_sandbox}, ${requests.sandbox})`)} end`,
          request_environment: requestEnvironment(keyEnvironment),
        })}
        from mediadock.requests`

/** The landing moves the request to another environment. */
const changesEnvironment = sql`coalesce(
          ${item.environment} <> coalesce(${r.result_environment}, ${r.request_environment}), false)`

/** The landing's key replaces that of the row, which is missing or of another environment. */
const replacesKey = sql`(${r.key_name} is null or coalesce(${item.environment} <> coalesce(${r.key_environment},
            case when ${r.key_source} = 'landed' then ${r.result_environment} end), false))`

/**
 * The key that signed is of another environment than the request. A key of unknown environment cannot prove that it is
 * the right one, so it counts as another. It is exempt for a confirmed request, which no webhook can change, and if the
 * request was tracked with this very key, which is no longer configured.
 */
const isOfOtherEnvironment = sql`(${item.environment} <> ${r.request_environment}
            or (${item.environment} is null and ${r.request_environment} is not null and ${r.confirmed_at} is null
              and (${r.key_name} <> ${item.key_name} or ${r.key_environment} is not null)))`

/**
 * An unconfirmed end needs the provider's word at once: the environment changes, a poll is due, the request was tracked
 * with another configured key than the one that signed, or no live key has signed.
 */
const isDoubtful = (now: SQL) => sql`(${changesEnvironment} or ${r.next_poll_at} <= ${now}
            or (${r.key_source} is distinct from 'landed' and ${r.key_environment} is not null
              and ${r.key_name} <> ${item.key_name})
            or (${item.environment} is distinct from 'live' and ${r.request_environment} is null))`

const nextPollAt = (now: SQL) => sql`case
          when not ${item.media_complete} or (not ${item.fetched} and ${isDoubtful(now)}) then ${now}
          -- A hint made the row. Its poll may be under way, and may end without an answer.
          when not ${item.fetched} and ${r.landed_at} is null and ${r.key_source} = 'landed' then ${r.next_poll_at} end`

/**
 * The provider's result overrules a webhook, and a webhook of the request's environment one of the other: a live one
 * overrules a sandbox one, unless the request was tracked with a sandbox key.
 */
const overrules = sql`(${r.confirmed_at} is null
            and (${item.fetched} or ${item.environment} <> ${r.result_environment}))`

/** The first line that applies. A result of the provider has no delivery, and takes precedence over all keys. */
const ruling = (isNewer: SQL) => sql`case
          when ${r.request_id} is null then 'landed'
          when ${isNewer} then 'raced'
          when ${r.source_name} is distinct from ${item.source_name} then 'source_mismatch'
          when ${item.delivery_id} is not null and ${isOfOtherEnvironment} then 'key_mismatch'
          when ${r.landed_at} is null then 'landed'
          when ${r.confirmed_at} is null and ${item.delivery_id} is not null and ${item.environment} = 'sandbox'
            and ${r.result_environment} = 'live' and ${r.request_environment} is null then 'key_mismatch'
          when ${overrules} then 'landed'
          when ${item.status} <> ${r.status} then 'contradiction'
          else 'no_effect' end`

const judge = (now: SQL, isNewer: SQL) => sql`
      select ${list(item, ...carried, ...besides)}, ${selected(decided, {
        cost: sql`coalesce(${item.cost}, case when not ${changesEnvironment} then ${r.cost} end)`,
        source: sql`case when ${r.landed_at} is null or ${r.status} <> ${item.status} or ${changesEnvironment}
          then ${item.source} else ${r.source} end`,
        key_name: sql`case when ${replacesKey} then ${item.key_name} else ${r.key_name} end`,
        key_source: sql`case when ${replacesKey} then 'landed' else ${r.key_source} end`,
        sandbox: sql`coalesce(coalesce(${item.environment}, ${r.request_environment}) = 'sandbox', ${r.sandbox})`,
        confirmed_at: sql`case when ${item.fetched} then ${now} end`,
        next_poll_at: nextPollAt(now),
        ruling: ruling(isNewer),
        changes_environment: changesEnvironment,
        version: r.version,
        old_status: r.status,
        old_landed_at: r.landed_at,
        old_confirmed_at: r.confirmed_at,
      })}`

/** SQL: `verdict` by the rows as the snapshot of the statement shows them. The look-up by row never scans a table. */
export const verdictAsSeen = (now: SQL, keyEnvironment: SQL, only: SQL) => sql`
    verdict as (${judge(now, sql`false`)}
      from item left join lateral (
        ${rowOfRequest(keyEnvironment)} where request_id = item.request_id limit 1) as r on true
      where ${only}
    )`

/** SQL: `verdict` by rows that are locked, which may be newer than the snapshot. */
export const verdictOfLocked = (now: SQL, keyEnvironment: SQL) => sql`
    seen as (
      select request_id, xmin::text as version from mediadock.requests
      where request_id = any(array(select request_id from item))
    ),
    locked as (
      ${rowOfRequest(keyEnvironment)} where request_id = any(array(select request_id from item))
      order by request_id for update
    ),
    verdict as (${judge(now, sql`${r.version} is distinct from seen.version`)}
      from item left join locked as r using (request_id) left join seen using (request_id)
    )`
