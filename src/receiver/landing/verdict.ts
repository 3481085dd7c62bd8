import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Environments } from '../domain/keys.ts'

/*
 * The rules that decide between a landing and the row of its request: docs/orders.md is the table. Each rule is one SQL
 * expression, named for what it decides, over the columns of `known`.
 *
 * An environment is 'live', 'sandbox', or null where it is unknown. A landing meets up to four: `environment` of the
 * key that signed or fetched it, `result_environment` of the result that the row holds, `request_environment` of the
 * request as the provider or its tracking decided it, and `old_key_environment` of the key in the row, as it is
 * configured now.
 */

const environmentOf = (sandbox: SQL) => sql`case ${sandbox} when true then 'sandbox' when false then 'live' end`

/** SQL: the environment of the key of a row, as it is configured now. */
export const todaysEnvironment = ({ live, sandbox }: Environments) => sql`case
               when key_name = any(${sql.param([...live])}::text[]) then 'live'
               when key_name = any(${sql.param([...sandbox])}::text[]) then 'sandbox' end`

/**
 * SQL: the row of a request with its environments. `tracked_environment` is stored by tracking, so later changes of the
 * keys do not change it: in a row that has landed, `signed_sandbox` shows that `sandbox` came from tracking. `version`
 * changes with each write of the row.
 */
const requestRow = (environments: Environments) => sql`
        select request_id, status, landed_at, confirmed_at, next_poll_at, cost, source, source_name,
          key_name, key_source, sandbox, xmin::text as version,
          ${environmentOf(sql`coalesce(signed_sandbox, sandbox)`)} as result_environment,
          case when landed_at is null or signed_sandbox is not null
            then ${environmentOf(sql`sandbox`)} end as tracked_environment,
          ${todaysEnvironment(environments)} as key_environment
        from mediadock.requests`

/** SQL: `known` as the snapshot of the statement shows the rows. The look-up by row never scans a table. */
export const knownAsSeen = (environments: Environments) => sql`
    ${knownFrom(
      sql`left join lateral (${requestRow(environments)} where request_id = item.request_id limit 1) as r on true`,
      sql`false`,
    )}`

/** SQL: `known` with rows that are locked, which may be newer than the snapshot. */
export const knownLocked = (environments: Environments) => sql`
    seen as (
      select request_id, xmin::text as version from mediadock.requests
      where request_id = any(array(select request_id from item))
    ),
    locked as (
      ${requestRow(environments)} where request_id = any(array(select request_id from item))
      order by request_id for update
    ),
    ${knownFrom(
      sql`left join locked as r using (request_id) left join seen using (request_id)`,
      sql`r.version is distinct from seen.version`,
    )}`

const knownFrom = (joins: SQL, isNewer: SQL) => sql`
    known as (
      select item.*, r.request_id is not null as is_known, ${isNewer} as is_newer, r.version,
             r.source_name is distinct from item.source_name as is_of_other_source,
             r.status as old_status, r.landed_at as old_landed_at, r.confirmed_at as old_confirmed_at,
             r.next_poll_at as old_next_poll_at, r.cost as old_cost, r.source as old_way, r.key_name as old_key_name,
             r.key_source as old_key_source, r.key_environment as old_key_environment, r.sandbox as old_sandbox,
             case when r.landed_at is not null then r.result_environment end as result_environment,
             ${requestEnvironment} as request_environment
      from item ${joins}
    )`

/**
 * The environment of a request is decided by the first of these that applies:
 *
 * 1. the provider, by the key to which it gives the result
 * 2. tracking, which stored it, or the key with which the request was tracked, if that is configured
 *
 * Otherwise it is open, and the result goes by its signature: a live key before a sandbox key. A key of unknown
 * environment decides nothing.
 */
const requestEnvironment = sql`case
               when r.confirmed_at is not null then ${environmentOf(sql`r.sandbox`)}
               when r.tracked_environment is not null then r.tracked_environment
               when r.key_source is distinct from 'landed' then r.key_environment end`

/** The landing moves the request to another environment. */
const changesEnvironment = sql`coalesce(environment <> coalesce(result_environment, request_environment), false)`

/** The landing's key replaces that of the row, which is missing or of another environment. */
const replacesKey = sql`(old_key_name is null or coalesce(environment <> coalesce(old_key_environment,
            case when old_key_source = 'landed' then result_environment end), false))`

/**
 * The key that signed is of another environment than the request. A key of unknown environment cannot prove that it is
 * the right one, so it counts as another. It is exempt for a confirmed request, which no webhook can change, and if the
 * request was tracked with this very key, which is no longer configured.
 */
const isOfOtherEnvironment = sql`(environment <> request_environment
            or (environment is null and request_environment is not null and old_confirmed_at is null
              and (old_key_name <> key_name or old_key_environment is not null)))`

/**
 * An unconfirmed end needs the provider's word at once: the environment changes, a poll is due, the request was tracked
 * with another configured key than the one that signed, or no live key has signed.
 */
const isDoubtful = (now: SQL) => sql`(changes_environment or old_next_poll_at <= ${now}
            or (old_key_source is distinct from 'landed' and old_key_environment is not null
              and old_key_name <> key_name)
            or (environment is distinct from 'live' and request_environment is null))`

const pollAt = (now: SQL) => sql`case
          when not media_complete or (not fetched and ${isDoubtful(now)}) then ${now}
          -- A hint made the row. Its poll may be under way, and may end without an answer.
          when not fetched and old_landed_at is null and old_key_source = 'landed' then old_next_poll_at end`

/**
 * The provider's result overrules a webhook, and a webhook of the request's environment one of the other: a live one
 * overrules a sandbox one, unless the request was tracked with a sandbox key.
 */
const overrules = sql`(old_confirmed_at is null and (fetched or environment <> result_environment))`

/** The first line that applies. A result of the provider has no delivery, and takes precedence over all keys. */
const ruling = sql`case
          when not is_known then 'landed'
          when is_newer then 'raced'
          when is_of_other_source then 'source_mismatch'
          when delivery_id is not null and ${isOfOtherEnvironment} then 'key_mismatch'
          when old_landed_at is null then 'landed'
          when old_confirmed_at is null and delivery_id is not null and environment = 'sandbox'
            and result_environment = 'live' and request_environment is null then 'key_mismatch'
          when ${overrules} then 'landed'
          when status <> old_status then 'contradiction'
          else 'no_effect' end`

/** SQL: `verdict` of each landing for which `only` holds. */
export const verdictOf = (now: SQL, only = sql`true`) => sql`
    verdict as (
      select judged.*, ${pollAt(now)} as poll_at, ${ruling} as ruling,
        coalesce(cost, case when not changes_environment then old_cost end) as new_cost,
        case when old_landed_at is null or old_status <> status or changes_environment
          then way else old_way end as new_way,
        case when replaces_key then key_name else old_key_name end as new_key_name,
        case when replaces_key then 'landed' else old_key_source end as new_key_source,
        coalesce(coalesce(environment, request_environment) = 'sandbox', old_sandbox) as new_sandbox
      from (
        select known.*, ${changesEnvironment} as changes_environment, ${replacesKey} as replaces_key from known
      ) as judged
      where ${only}
    )`
