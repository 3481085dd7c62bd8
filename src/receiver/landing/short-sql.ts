import { changed, dequeued, items, mediaWritten, notified, replayDetail, written } from './parts-sql.ts'
import { row, verdict } from './rules-sql.ts'

/*
 * The short statement, which lands ordinary deliveries: the request has not landed, and no other delivery names the
 * request or has the same webhook id. parts-sql.ts explains the parts. whole-sql.ts has the statement for every landing.
 */

/**
 * Selects the ordinary deliveries and judges them, by the rows as the snapshot shows them. Each look-up has its own
 * `limit 1`, so that outdated statistics never make the planner scan a table. The range of ids is read in order, since
 * the planner of Postgres 18 may otherwise choose to skip through the index by time, and then read all of it.
 */
const verdictAsSeen = verdict({
  rowChanged: 'false',
  from: `item left join lateral (${row} where request_id = item.request_id limit 1) as r on true`,
  where: `r.landed_at is null
        and (select 1 from mediadock.deliveries d
             where d.request_id = item.request_id and d.id <> item.delivery_id limit 1) is null
        and (select 1 from mediadock.deliveries d
             where d.id between item.webhook_first_id and item.webhook_last_id and d.id <> item.delivery_id
             order by d.id limit 1) is null`,
})

/**
 * Only the landings that were written. Mismatches, and rows that changed since they were read, are left to the whole
 * statement. `is true` makes the planner hash the list instead of joining it, here and below.
 */
const outcomesTaken = `
    outcomes as (
      select request_id, via, delivery_id, claims, old_landed_at, 'landed' as outcome from verdict
      where (request_id in (select written.request_id from written)) is true
    )`

/** The attempt of each delivery, but for one that lands at its first claim. A replayed delivery was claimed before. */
const attemptedAgain = `
    attempted as (
      insert into mediadock.attempts (delivery_id, attempted_at, outcome, detail, replay_id)
      select delivery_id, :now, outcome, ${replayDetail}, replay_id from dequeued where claims > 1
      on conflict do nothing
    )`

/** The WITH of the short statement. It flags nothing, and locks nothing before it writes. */
export const short = [
  items,
  verdictAsSeen,
  written,
  outcomesTaken,
  mediaWritten,
  dequeued,
  attemptedAgain,
  changed,
  notified,
]
