import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { NoAnswerError, untilNotGivingWay } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import type { Environments } from '../domain/keys.ts'
import { nextExtraPoll } from '../domain/poll-rhythm.ts'
import { outputOfRow } from '../domain/results-schema.ts'
import { discard, flagAndPark, hasTooManyParked, parking } from './flag-and-park.ts'
import type { Landing } from './row-to-write.ts'
import { knownAsSeen, knownLocked, verdictOf } from './verdict.ts'
import {
  carriedMedia,
  changed,
  everyNotification,
  items,
  notified,
  removeMedia,
  settle,
  writeMedia,
  writeRequests,
} from './writes.ts'

/*
 * The two statements that land results. They share their parts, and so the rules of verdict.ts. Each part reads those
 * above it; all see the tables as they were before the statement:
 *
 *   item      one row per landing: what the webhook or the result carries, who signed it, and the claim of its delivery
 *   known     item, the row of its request as old_…, and the environments of the stored result and of the request
 *   verdict   known, the values to write as new_… and poll_at, and the ruling: the outcome that the rules demand
 *   written   the rows of requests that were written, as they are now
 *   ended     verdict, and the outcome (LandingOutcome), which every later part reads instead of the ruling. In the
 *             whole statement also the status that stands now, whether it is final, and whether it concerns all
 *             deliveries of the request, or only the one that landed
 *   settled   the deliveries whose claim still held and ended
 *   flag      the flags that deliveries get or lose, and which are parked (flag-and-park.ts)
 *
 * The other parts write: media_written, media_removed, version_left, due_again, noted, discarded, flagged, changed,
 * notified. The preview of a replay also reads the first two.
 *
 * A claim fences only the end of its delivery (`settled`). A late claimant may still write a request: that row is
 * protected by its version (xmin, in `written`) and by the verdict.
 *
 * A landing that judged a row as another landing left it is `raced`, and runs again. So each landing leaves a new
 * version of a row that is not confirmed, also where it only flags or parks its delivery. A statement that waited for
 * it would otherwise not see those flags, since its snapshot is older.
 *
 * A row is often selected by an array of one (`= any(array[x])`). This forces one index look-up per row, although the
 * statistics are usually those of an empty inbox. An array of all rows beside a join would be sorted for each row.
 */

export const landingOutcomes = [
  'landed',
  'agreed',
  'no_effect',
  'contradiction',
  'key_mismatch',
  'source_mismatch',
  'discarded',
  'raced',
] as const

/**
 * - `landed`: the row became terminal or complete, or was overruled: see `overrules` of verdict.ts
 * - `agreed`: the provider's result confirms what readers have: see isAsRead. The row is written without a change
 * - `no_effect`: the request has ended in this state already; the content is not compared
 * - `contradiction`: another terminal state stands. The delivery is flagged and the row not changed
 * - `key_mismatch`: signed with a key of the other environment, or of an unknown one, and parked
 * - `source_mismatch`: the request belongs to another source than the delivery, which is parked
 * - `discarded`: a mismatch, but `maxParkedForRequest` deliveries of the request are parked for it already. It is deleted
 * - `raced`: the row appeared or landed at the same moment. Nothing was written; try again
 */
export type LandingOutcome = (typeof landingOutcomes)[number]

/** `now`: the time that replicas share (time.ts). `waitMs`: how long to wait for a locked row. */
export type LandingAt = { now: SQL; environments: Environments; waitMs?: number | undefined }

type Ended = { request_id: string; outcome: LandingOutcome }

/** Outcomes by request. With a `failure`, they were committed before it, except `raced`. */
export type Settled = { outcomes: Map<string, LandingOutcome>; failure?: { error: unknown } }

/**
 * Writes each result in one statement: the state of its request, its media, flags and ends of deliveries, the change
 * for the feed, and the NOTIFY for readers. States never go back: docs/orders.md says which end overrules which.
 *
 * Takes one landing per request: batches.ts keeps the others back (`inFlight`). First runs the short statement, then
 * the whole one for the landings that the short one left. Never throws: a failure is returned, beside the outcomes that
 * the short statement had committed.
 */
export async function landSettling(db: Database, landings: readonly Landing[], at: LandingAt): Promise<Settled> {
  const outcomes = new Map<string, LandingOutcome>()
  try {
    const ordinary = landings.filter(mayBeOrdinary)
    for (const one of await run(db, ordinary, ordinaryStatement(ordinary, at))) outcomes.set(...one)
    let open = landings.filter(({ requestId }) => !outcomes.has(requestId))
    // Another landing of the request may come between reading and writing. The next try sees it.
    for (let tries = 1; open.length > 0 && tries <= 5; tries += 1) {
      const found = await run(db, open, landingStatement(open, at))
      // Every landing must have an outcome.
      if (found.length < open.length) throw new NoAnswerError(`landing ${open.length} results`)
      for (const one of found) outcomes.set(...one)
      open = open.filter(({ requestId }) => outcomes.get(requestId) === 'raced')
    }
    return { outcomes }
  } catch (error) {
    return { outcomes, failure: { error } }
  }
}

/** Lands results like landSettling(), but throws any failure. For callers that cannot use a partial result. */
export async function land(
  db: Database,
  landings: readonly Landing[],
  at: LandingAt,
): Promise<Map<string, LandingOutcome>> {
  const { outcomes, failure } = await landSettling(db, landings, at)
  if (failure) throw failure.error
  return outcomes
}

async function run(db: Database, landings: readonly Landing[], parts: SQL): Promise<[string, LandingOutcome][]> {
  if (landings.length === 0) return []
  const statement = sql`${parts} select request_id, outcome from ended where ${everyNotification}`
  const rows = await untilNotGivingWay(() => executePrepared<Ended>(db, statement))
  return rows.map(({ request_id, outcome }) => [request_id, outcome])
}

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

/** SQL: the WITH of the whole statement. A reader of `ended` must add `everyNotification`. */
export function landingStatement(landings: readonly Landing[], { now, environments, waitMs }: LandingAt): SQL {
  return sql`with ${items(landings, waitMs)},
    ${knownLocked(environments)},
    ${verdictOf(now)},
    ${writeRequests(now)},
    ${writeMedia},
    ${removeMedia},
    ${ended},
    ${versionUnconfirmed(now)},
    ${settle(now)},
    ${discard},
    ${flagAndPark(environments)},
    ${changed(now)},
    ${notified}`
}

/**
 * SQL: the WITH of the short statement, for ordinary deliveries: the request has not landed, it and the webhook id have
 * no other delivery, and nothing is to be flagged. It locks no row before it writes. `ended` contains only the
 * landings that it took; a row that changed since it was read is left to the whole statement.
 */
export function ordinaryStatement(landings: readonly Landing[], { now, environments, waitMs }: LandingAt): SQL {
  return sql`with ${items(landings, waitMs)},
    ${knownAsSeen(environments)},
    ${verdictOf(now, isAlone)},
    ${writeRequests(now)},
    ended as (
      select verdict.*, 'landed' as outcome from verdict
      where (request_id in (select request_id from written)) is true
    ),
    ${writeMedia},
    ${settle(now)},
    ${changed(now)},
    ${notified}`
}

/** Returns false if the landing alone shows that it needs the whole statement. */
export function mayBeOrdinary({ delivery, flags, fetched }: Landing): boolean {
  return delivery?.claims !== undefined && flags.length === 0 && !fetched
}

/** Each look-up has its own `limit 1`, so that outdated statistics never make the planner scan a table. */
const isAlone = sql`old_landed_at is null
        and (select 1 from mediadock.deliveries d
             where d.request_id = judged.request_id and d.id <> judged.delivery_id limit 1) is null
        and (select 1 from mediadock.deliveries d
             where d.id between judged.first_id and judged.last_id and d.id <> judged.delivery_id limit 1) is null`

/**
 * SQL condition: readers have what was written: the same end, complete, with its cost and output, which has the media.
 * The view still shows the row before this statement. The provider's words for an error, its times and the name of the
 * model are no change for readers.
 */
const isAsRead = sql`(select (shown.status, shown.media_complete, shown.cost, shown.output) is not distinct from (
                      written.status, written.media_complete, written.cost,
                      coalesce(written.output, ${outputOfRow(carriedMedia)}))
                    from mediadock.results shown where shown.request_id = verdict.request_id limit 1)`

/** SQL condition: the delivery would be parked, but the limit is reached. A kept delivery that is replayed stays. */
const isDiscarded = sql`(select i.replay_id from mediadock.inbox i
                      where i.delivery_id = verdict.delivery_id limit 1) is null
                    and ${hasTooManyParked(sql`verdict.request_id`, sql`ruling`, sql`verdict.delivery_id`)}`

const ended = sql`
    ended as (
      select verdict.*,
             case when ruling = 'landed' and written.request_id is null then 'raced'
                  when fetched and not changes_environment and ${isAsRead} then 'agreed'
                  when ruling in ${parking} and claims is not null and ${isDiscarded} then 'discarded'
                  else ruling end as outcome,
             coalesce(written.status, verdict.old_status) as final_status,
             old_confirmed_at is not null or (fetched and written.request_id is not null) as is_final,
             -- Otherwise the flags of the other deliveries of the request stay as their own landings set them.
             written.request_id is not null and (fetched or changes_environment
               or written.status is distinct from verdict.old_status) as concerns_all
      from verdict left join written using (request_id)
    )`

/**
 * SQL: leaves a new version of an unconfirmed row that was only judged. A contradiction or key mismatch schedules an
 * extra poll, which decides it. The other polls stay.
 */
const versionUnconfirmed = (now: SQL) => sql`
    version_left as (
      update mediadock.requests r
      set doubt_poll_at = case when outcome = 'no_effect' then r.doubt_poll_at
        else coalesce(r.doubt_poll_at, ${nextExtraPoll(now)}) end
      from ended
      where r.request_id = any(array[ended.request_id]) and r.confirmed_at is null
        and outcome in ('contradiction', 'key_mismatch', 'no_effect')
    )`
