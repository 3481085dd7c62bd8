import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one, retryConflicts } from '../../platform/postgres/errors.ts'
import { claimsAnew } from '../../platform/postgres/lease.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { pollIncomplete } from '../domain/poll-schedule.ts'
import { maxFailures } from './inbox.ts'

/** The pace at which requeued deliveries become due, well below the landing rate of a small machine. */
const duePerSecond = 250

type Requeue = {
  replayId: string
  ids: readonly string[]
  /** The number of deliveries on earlier pages of the replay. */
  before: number
  /** The time that replicas share. */
  now: SQL
}

/**
 * Puts stored deliveries back into the inbox, as part of a replay. They land like any other, judged by the environment
 * stored with them. A parked one becomes pending and gets one try: the next failure parks it again. Deliveries that are
 * pending already are left alone. An incomplete result becomes due for a poll. Returns how many were put back.
 */
export async function requeue(db: Database, { replayId, ids, before, now }: Requeue): Promise<number> {
  const statement = sql`
    with chosen as materialized (
      select d.*, n from unnest(${sql.param(ids)}::uuid[]) with ordinality as given (id, n),
        lateral (select d.id, d.request_id, d.parked_reason from mediadock.deliveries d
          where d.id = given.id limit 1 for no key update) as d
    ),
    requeued as (
      insert into mediadock.inbox (delivery_id, due_at, claims, failures, replay_id)
      select id, ${now} + make_interval(secs => (${before}::int + n) / ${duePerSecond}::float8), ${claimsAnew},
        case when parked_reason is null then 0 else ${maxFailures - 1} end, ${replayId}::uuid
      from chosen order by id
      on conflict do nothing returning delivery_id
    ),
    unparked as (
      update mediadock.deliveries d set parked_reason = null from chosen
      where d.id = any(array[chosen.id]) and chosen.parked_reason is not null
        and chosen.id in (select delivery_id from requeued)
    ),
    polled as (
      ${pollIncomplete(
        now,
        sql`array(
        select request_id from chosen where request_id is not null and id in (select delivery_id from requeued))`,
      )}
    )
    update mediadock.replays set requeued = requeued + (select count(*) from requeued)
    where id = ${replayId}::uuid returning (select count(*)::int from requeued) as n`
  return one(await retryConflicts(() => db.execute<{ n: number }>(statement)), `the replay ${replayId}`).n
}
