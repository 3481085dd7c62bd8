import postgres from 'postgres'
import { z } from 'zod'
import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { databaseErrorOf, NoAnswerError, one, untilNotGivingWay } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import { isTried, tried } from '../../platform/postgres/tried.ts'
import type { Environments } from '../domain/keys.ts'
import * as schema from '../domain/schema.ts'
import type { Landing } from './landing.ts'
import { noteChanges } from './statement/changes.ts'
import { flags } from './statement/flags.ts'
import { items, lockWaitMs } from './statement/items.ts'
import { removeOverruledMedia, writeMedia } from './statement/media.ts'
import { mayBeOrdinary, ordinaryLandings } from './statement/ordinary.ts'
import { doubtOfParked, isAsLocked, outcomes, pollTheDoubted, writeRequests } from './statement/requests.ts'
import { discard, everyEnd, notifyReaders, settle } from './statement/settling.ts'
import { rowsAsTheyAre, verdicts, whatIsKnown } from './statement/verdicts.ts'

const r = columnsOf(schema.results, 'r')

const outcomeNames = [
  'landed',
  'confirmed',
  'no_effect',
  'contradiction',
  'key_mismatch',
  'discarded',
  'raced',
] as const

/**
 * - `landed`: the row became terminal, complete, or was overruled by the provider's own result
 * - `confirmed`: the provider's result was taken over where the webhook had carried all of it, as it does of an ERROR
 * - `no_effect`: it says what is known already
 * - `contradiction`: another terminal state stands; flagged, not applied
 * - `key_mismatch`: signed with a key of the other environment; parked
 * - `discarded`: the same, where `maxParkedForKey` of the request are parked already; the delivery is deleted
 * - `raced`: the row appeared or landed in the same moment; nothing was written, try again
 */
export type LandingOutcome = (typeof outcomeNames)[number]

const row = z.record(z.string(), z.unknown())
const changeSchema = z.object({
  request_id: z.string(),
  outcome: z.enum(outcomeNames),
  request: z.object({ before: row.nullable(), after: row.nullable() }),
  media: z.object({ written: z.array(row), removed: z.array(row) }),
})

/** What a landing wrote, row by row. */
export type Change = z.infer<typeof changeSchema>

/** Another landing of the same request came between our look and our write; the next look sees it. */
const maxTries = 5

/**
 * Writes results in one statement: the requests' states, their media, the
 * deliveries' flags and ends, what is to go into the feed, and the NOTIFY for readers. States never go back:
 * the first terminal state stays, except that a confirmed one overrules a
 * webhook's. At most one landing per request in a call. `landed` gets the outcomes as they are
 * committed: where it throws, what the short way has written is in there.
 */
export async function land(
  db: Database,
  landings: readonly Landing[],
  at: At,
  landed = new Map<string, LandingOutcome>(),
): Promise<Map<string, LandingOutcome>> {
  for (const { request_id, outcome } of await landOrdinary(db, landings, at)) landed.set(request_id, outcome)
  let open = landings.filter(({ requestId }) => !landed.has(requestId))
  for (let tries = 1; open.length > 0 && tries <= maxTries; tries += 1) {
    const statement = sql`${landing(open, at)} select request_id, outcome from outcome where ${everyNotification}`
    const rows = await untilNotGivingWay(() => executePrepared<Came>(db, statement))
    // Each landing has an outcome, whatever it is.
    if (rows.length < open.length) throw new NoAnswerError(`landing ${open.length} results`)
    for (const { request_id, outcome } of rows) landed.set(request_id, outcome)
    open = open.filter(({ requestId }) => landed.get(requestId) === 'raced')
  }
  return landed
}

/** The short way (ordinary.ts): what it did not take has no outcome here. */
async function landOrdinary(
  db: Database,
  landings: readonly Landing[],
  { now, environments, waitMs = lockWaitMs }: At,
): Promise<readonly Came[]> {
  const ordinary = landings.filter((landing) => mayBeOrdinary(landing, environments))
  if (ordinary.length === 0) return []
  const statement = sql`${ordinaryLandings(ordinary, sql`${now.toISOString()}::timestamptz`, waitMs)} select request_id, outcome from outcome where ${everyNotification}`
  const rows = await untilNotGivingWay(() => executePrepared<Came>(db, statement))
  return rows
}

/**
 * The same for one landing, with what changed; with `dryRun` all of it is done, whatever triggers and
 * constraints there are, and then taken back. Where it cannot be, it ends itself before it has done anything.
 */
export async function landExplained(
  db: Database,
  written: Landing,
  { dryRun, ...at }: At & { dryRun: boolean },
): Promise<Change> {
  const statement = sql`
    ${landing([written], at)}
    select ${dryRun ? sql`case when ${isTried} then change else mediadock.rolled_back(change) end` : sql`change`} as change from (
      select jsonb_build_object(
        'request_id', outcome.request_id, 'outcome', outcome.outcome,
        'request', jsonb_build_object(
          'before', (select to_jsonb(r) - 'metadata' from mediadock.results r where ${r.request_id} = outcome.request_id),
          'after', (select to_jsonb(w) from written w)),
        'media', jsonb_build_object(
          'written', coalesce((select jsonb_agg(to_jsonb(m)) from media_written m), '[]'),
          'removed', coalesce((select jsonb_agg(to_jsonb(m)) from media_overruled m), '[]'))) as change
      from outcome where ${everyNotification}) as c`
  const run = () => (dryRun ? tried<{ change: Change }>(db, statement) : db.execute<{ change: Change }>(statement))
  const rows = await untilNotGivingWay<readonly { change: Change }[]>(run).catch((error: unknown) => [
    { change: rolledBack(error) },
  ])
  return one(rows, `landing request ${written.requestId}`).change
}

/** The result that a dry run carried out of its rollback; any other error goes on. */
function rolledBack(error: unknown): Change {
  const cause = databaseErrorOf(error)
  if (!(cause instanceof postgres.PostgresError) || cause.code !== 'MD001') throw error
  return changeSchema.parse(JSON.parse(cause.detail ?? 'null'))
}

type Came = { request_id: string; outcome: LandingOutcome }

/** `waitMs`: for how long a row that another transaction holds is waited for. */
type At = { now: Date; environments: Environments; waitMs?: number | undefined }

/** Reads `notified` to its end (see there), once: beside `outcome` in a join it may be read anew for each row. */
const everyNotification = sql`(select count(*) from notified) >= 0`

/** The WITH of the one statement, in the order in which its parts read one another. */
function landing(landings: readonly Landing[], { now, environments, waitMs = lockWaitMs }: At): SQL {
  const at = sql`${now.toISOString()}::timestamptz`
  const parts = [
    items(landings, waitMs),
    rowsAsTheyAre(environments),
    whatIsKnown(),
    verdicts(at),
    writeRequests(at, { unlessChanged: isAsLocked, doubt: doubtOfParked(at) }),
    writeMedia(),
    removeOverruledMedia(),
    outcomes(),
    pollTheDoubted(at),
    settle(at, everyEnd),
    discard(),
    flags(environments),
    noteChanges(at),
    notifyReaders(),
  ]
  return sql`with ${sql.join(parts, sql`, `)}`
}
