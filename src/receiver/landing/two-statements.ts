import assert from 'node:assert/strict'
import { atMost } from '../../platform/postgres/at-most.ts'
import { columnsOf, list, selected } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { NoAnswerError, untilNotGivingWay } from '../../platform/postgres/errors.ts'
import { statementOf, type Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import type { Environments } from '../domain/keys.ts'
import { nextExtraPoll } from '../domain/poll-rhythm.ts'
import { outputOfRow, results } from '../domain/results-schema.ts'
import * as schema from '../domain/schema.ts'
import { discard, flagAndPark, hasTooManyParked, parking } from './flag-and-park.ts'
import { ended, forEnds, forFlags, item, row, standing, verdict, written } from './parts.ts'
import type { Landing } from './row-to-write.ts'
import { todaysEnvironment, verdictAsSeen, verdictOfLocked } from './verdict.ts'
import {
  carriedMedia,
  changed,
  everyNotification,
  items,
  landAgain,
  landingLockWaitMs,
  noteAttempts,
  notified,
  removeMedia,
  settle,
  toItem,
  writeMedia,
  writeRequests,
} from './writes.ts'

/*
 * The statement for every landing, and the short one for ordinary deliveries: docs/decisions/two-statements.md lists
 * the reasons, parts.ts the parts.
 */

const shown = columnsOf(results, 'shown')
const requests = columnsOf(schema.requests)
const r = columnsOf(schema.requests, 'r')
const i = columnsOf(schema.inbox, 'i')
const d = columnsOf(schema.deliveries, 'd')

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

/** Returns false if the landing alone shows that it needs the whole statement. */
function mayBeOrdinary({ delivery, flags, fetched }: Landing): boolean {
  return delivery?.claims !== undefined && flags.length === 0 && !fetched
}

/** The values of a statement. */
type Values = Record<'landings' | 'waitMs' | 'limit' | 'now' | 'keyEnvironment', SQL>

/**
 * Puts the text of a statement together once, with gaps for its values. Doing that anew for each batch, from the names
 * of all columns, would double what a statement costs this process.
 */
function withGaps(build: (values: Values) => SQL): (landings: readonly Landing[], at: LandingAt) => SQL {
  const mark = '\u0000'
  const gap = (name: keyof Values) => sql.raw(mark + name + mark)
  const { text, params } = statementOf(
    build({
      landings: gap('landings'),
      waitMs: gap('waitMs'),
      limit: gap('limit'),
      now: gap('now'),
      keyEnvironment: gap('keyEnvironment'),
    }),
  )
  assert(params.length === 0, 'all values of a statement are in its gaps')
  const pieces = text.split(mark)
  return (landings, { now, environments, waitMs = landingLockWaitMs }) => {
    const values: Values = {
      landings: sql`${JSON.stringify(landings.map(toItem))}`,
      waitMs: sql`${`${waitMs}ms`}`,
      limit: atMost(landings.length),
      now,
      keyEnvironment: todaysEnvironment(environments),
    }
    const filled = new Map(Object.entries(values))
    return sql.join(pieces.map((piece) => filled.get(piece) ?? sql.raw(piece)))
  }
}

/**
 * SQL condition: readers have what was written: the same end, complete, with its cost and output, which has the media.
 * The view still shows the row before this statement. The provider's words for an error, its times and the name of the
 * model are no change for readers.
 */
const isAsRead = sql`(select (${shown.status}, ${shown.media_complete}, ${shown.cost}, ${shown.output})
                      is not distinct from (${written.status}, ${written.media_complete}, ${written.cost},
                      coalesce(${written.output}, ${outputOfRow(carriedMedia(verdict.media))}))
                    from mediadock.results shown where ${shown.request_id} = ${verdict.request_id} limit 1)`

/** SQL condition: the delivery would be parked, but the limit is reached. A kept delivery that is replayed stays. */
const isDiscarded = sql`(select ${i.replay_id} from mediadock.inbox i
                      where ${i.delivery_id} = ${verdict.delivery_id} limit 1) is null
                    and ${hasTooManyParked(verdict.request_id, verdict.ruling, verdict.delivery_id)}`

const judgeWritten = sql`
    ended as (
      select ${list(verdict, ...forEnds, ...forFlags)}, ${selected(standing, {
        outcome: sql`case when ${verdict.ruling} = 'landed' and ${written.request_id} is null then 'raced'
          when ${verdict.fetched} and not ${verdict.changes_environment} and ${isAsRead} then 'agreed'
          when ${verdict.ruling} in ${parking} and ${verdict.claims} is not null and ${isDiscarded} then 'discarded'
          else ${verdict.ruling} end`,
        final_status: sql`coalesce(${written.status}, ${verdict.old_status})`,
        is_final: sql`${verdict.old_confirmed_at} is not null
          or (${verdict.fetched} and ${written.request_id} is not null)`,
        // Otherwise the flags of the other deliveries of the request stay as their own landings set them.
        concerns_all: sql`${written.request_id} is not null and (${verdict.fetched} or ${verdict.changes_environment}
          or ${written.status} is distinct from ${verdict.old_status})`,
      })}
      from verdict left join written using (request_id)
    )`

/**
 * SQL: leaves a new version of an unconfirmed row that was only judged. A contradiction or key mismatch schedules an
 * extra poll, which decides it. The other polls stay.
 */
const versionUnconfirmed = (now: SQL) => sql`
    version_left as (
      update mediadock.requests r
      set ${requests.doubt_poll_at} = case when ${ended.outcome} = 'no_effect' then ${r.doubt_poll_at}
        else coalesce(${r.doubt_poll_at}, ${nextExtraPoll(now)}) end
      from ended
      where ${r.request_id} = any(array[${ended.request_id}]) and ${r.confirmed_at} is null
        and ${ended.outcome} in ('contradiction', 'key_mismatch', 'no_effect')
    )`

/** SQL: the WITH of the whole statement. A reader of `ended` must add `everyNotification`. */
export const landingStatement = withGaps(
  ({ landings, waitMs, limit, now, keyEnvironment }) => sql`with ${items(landings, waitMs, limit)},
    ${verdictOfLocked(now, keyEnvironment)},
    ${writeRequests(now)},
    ${writeMedia},
    ${removeMedia},
    ${judgeWritten},
    ${versionUnconfirmed(now)},
    ${settle},
    ${landAgain(now)},
    ${noteAttempts(now)},
    ${discard},
    ${flagAndPark(keyEnvironment)},
    ${changed(now)},
    ${notified}`,
)

/** Each look-up has its own `limit 1`, so that outdated statistics never make the planner scan a table. */
const isAlone = sql`${row.landed_at} is null
        and (select 1 from mediadock.deliveries d
             where ${d.request_id} = ${item.request_id} and ${d.id} <> ${item.delivery_id} limit 1) is null
        and (select 1 from mediadock.deliveries d
             where ${d.id} between ${item.first_id} and ${item.last_id}
               and ${d.id} <> ${item.delivery_id} limit 1) is null`

/**
 * SQL: the WITH of the short statement, for ordinary deliveries: the request has not landed, it and the webhook id have
 * no other delivery, and nothing is to be flagged. It locks no row before it writes. `ended` contains only the
 * landings that it took; a row that changed since it was read is left to the whole statement.
 */
const ordinaryStatement = withGaps(
  ({ landings, waitMs, limit, now, keyEnvironment }) => sql`with ${items(landings, waitMs, limit)},
    ${verdictAsSeen(now, keyEnvironment, isAlone)},
    ${writeRequests(now)},
    ended as (
      select ${list(verdict, ...forEnds)}, 'landed' as outcome from verdict
      where (${verdict.request_id} in (select ${written.request_id} from written)) is true
    ),
    ${writeMedia},
    ${settle},
    ${noteAttempts(now)},
    ${changed(now)},
    ${notified}`,
)
