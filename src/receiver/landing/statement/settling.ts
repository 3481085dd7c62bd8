import { columnsOf, list } from '../../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../../platform/postgres/drizzle.ts'
import * as schema from '../../domain/schema.ts'
import { writtenThatLanded } from './verdicts.ts'

const attempts = columnsOf(schema.attempts)
const d = columnsOf(schema.deliveries, 'd')
const inbox = columnsOf(schema.inbox)

/** In the long way each end is kept. */
export const everyEnd = sql`true`
/** The ordinary end, at the time when the request landed, is what nearly every delivery has: it is kept after a failure only. */
export const endAfterFailure = sql`failures > 0`

/**
 * Ends the work on each delivery: out of the inbox if the claim still holds,
 * due again at once if its request raced, with a row in `attempts` where
 * `isKept` says so. A replay has no claim and settles whatever waits; that it is the
 * end of what waited or was parked is told from one that repeats an end. Reads `outcome`.
 *
 * Each row is named as an array of one, for which there is no join but a look-up for each delivery: the inbox is empty
 * most of the time, and a plan made while it was would read all of a full one. (Not as an array of all beside the join:
 * that is sorted anew for each of them.)
 */
export function settle(at: SQL, isKept: SQL): SQL {
  return sql`
    settled as (
      delete from mediadock.inbox using outcome
      where inbox.${inbox.delivery_id} = any(array[outcome.delivery_id])
        and outcome <> 'raced' and (inbox.${inbox.claims} = outcome.claims or outcome.claims is null)
      returning inbox.${inbox.delivery_id}, inbox.${inbox.failures}
    ),
    released as (
      update mediadock.inbox set ${inbox.due_at} = ${at} from outcome
      where inbox.${inbox.delivery_id} = any(array[outcome.delivery_id]) and inbox.${inbox.claims} = outcome.claims and outcome = 'raced'
    ),
    noted as (
      insert into mediadock.attempts (${list(attempts, 'delivery_id', 'attempted_at', 'outcome', 'detail')})
      select delivery_id, ${at}, outcome,
        case when claims is null then case when delivery_id in (select delivery_id from settled)
          or (select ${d.parked_reason} from mediadock.deliveries d where ${d.id} = outcome.delivery_id limit 1) is not null
          then 'replayed to its end' else 'replay' end end
      from outcome
      where (delivery_id in (select delivery_id from settled where ${isKept}) and outcome <> 'discarded') or (delivery_id is not null and claims is null)
      on conflict do nothing
    )`
}

/** `discarded`: deletes the deliveries that are not kept; they have no row in `attempts`. Reads `outcome` and `settled`. */
export function discard(): SQL {
  return sql`
    discarded as (
      delete from mediadock.deliveries d using outcome
      where ${d.id} = any(array[outcome.delivery_id]) and outcome = 'discarded' and ${d.id} in (select delivery_id from settled)
    )`
}

/**
 * `notified`: one NOTIFY for each request that landed. It is a SELECT, which
 * Postgres runs only as far as somebody reads it, unlike the writes above: the
 * end of the statement has to count its rows.
 */
export function notifyReaders(): SQL {
  return sql`
    notified as (
      select pg_notify('mediadock_results', json_build_object(
        'request_id', request_id, 'status', status, 'media_complete', media_complete)::text)
      from ${writtenThatLanded}
    )`
}
