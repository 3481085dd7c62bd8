import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { Environments } from '../domain/keys.ts'

/* The rows that a landing meets: the first parts of landing-statement.ts, and those that are locked. */

const resultEnvironment = sql`case coalesce(signed_sandbox, sandbox)
               when true then 'sandbox' when false then 'live' end`

/**
 * The environment that tracking stored, which later changes of the keys do not change. In a row that has landed,
 * `signed_sandbox` shows that `sandbox` came from tracking.
 */
const trackedEnvironment = sql`case when landed_at is null or signed_sandbox is not null
               then case sandbox when true then 'sandbox' when false then 'live' end end`

/** SQL: the environment of the key of a row, as it is configured now. */
export const todaysEnvironment = ({ live, sandbox }: Environments) => sql`case
               when key_name = any(${sql.param([...live])}::text[]) then 'live'
               when key_name = any(${sql.param([...sandbox])}::text[]) then 'sandbox' end`

/** SQL: `seen` and `locked`, the rows of the requests as the snapshot shows them, and once they are locked. */
export const requestsOf = (environments: Environments) => sql`
    seen as (
      select request_id, landed_at, confirmed_at, ${resultEnvironment} as result_environment
      from mediadock.requests where request_id = any(array(select request_id from item))
    ),
    locked as (
      select request_id, status, landed_at, confirmed_at, next_poll_at, media_complete, cost, source,
             key_name, key_source, sandbox, source_name,
             ${resultEnvironment} as result_environment, ${trackedEnvironment} as tracked_environment,
             ${todaysEnvironment(environments)} as key_environment
      from mediadock.requests where request_id = any(array(select request_id from item))
      order by request_id for update
    )`

/** SQL: `known`, each landing with the row of its request. */
export const known = sql`
    known as (
      select item.*, locked.request_id is not null as is_known, locked.status as old_status,
             locked.source_name is distinct from item.source_name as is_of_other_source,
             locked.landed_at as old_landed_at, locked.confirmed_at as old_confirmed_at,
             locked.next_poll_at as old_next_poll_at, locked.media_complete as old_media_complete,
             locked.cost as old_cost, locked.source as old_source, locked.key_name as old_key_name,
             locked.key_source as old_key_source, locked.key_environment as old_key_environment,
             locked.sandbox as old_sandbox,
             locked.landed_at is not null
               and (seen.landed_at, seen.confirmed_at, seen.result_environment)
                 is distinct from (locked.landed_at, locked.confirmed_at, locked.result_environment) as is_newer,
             case when locked.landed_at is not null then locked.result_environment end as result_environment,
             -- Confirmed by the provider, else stored by tracking, else that of the key with which it was tracked.
             case when locked.confirmed_at is not null
                    then case locked.sandbox when true then 'sandbox' when false then 'live' end
                  when locked.tracked_environment is not null then locked.tracked_environment
                  when locked.key_source is distinct from 'landed' then locked.key_environment
                  end as request_environment
      from item left join locked using (request_id) left join seen using (request_id)
    )`

/**
 * Returns the requests among these whose rows another transaction has locked at this moment, including rows that it
 * inserted and has not committed. Takes about a millisecond for each of those.
 */
export async function lockedRequests(db: Database, requestIds: readonly string[]): Promise<Set<string>> {
  const rows = await db.execute<{ id: string }>(
    sql`select id from mediadock.held_requests(${sql.param([...requestIds])}::uuid[]) as id`,
  )
  return new Set(rows.map(({ id }) => id))
}
