import postgres from 'postgres'
import { z } from 'zod'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { databaseErrorOf, NoAnswerError, one, untilNotGivingWay } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import { isTried, tried } from '../../platform/postgres/tried.ts'
import type { Environments } from '../domain/keys.ts'
import { landingStatement } from './landing-statement.ts'
import type { Landing } from './landing.ts'
import { mayBeOrdinary, ordinaryStatement } from './ordinary-statement.ts'
import { everyNotification, landingLockWaitMs } from './statement-parts.ts'

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
 * - `landed`: the row became terminal or complete, or was overruled by the provider's result or by a live webhook
 * - `confirmed`: the provider's result says what the webhook had said in full, as it does of an ERROR
 * - `no_effect`: the row holds this already
 * - `contradiction`: another terminal state stands; the delivery is flagged, the row is not changed
 * - `key_mismatch`: signed with a key of the other environment; parked
 * - `discarded`: the same, and `maxParkedForKey` deliveries of the request are parked already; this one is deleted
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

/** The rows that a landing wrote. */
export type Change = z.infer<typeof changeSchema>

/** `now`: the time that replicas share (time.ts). `waitMs`: how long to wait for a row that is locked. */
type At = { now: SQL; environments: Environments; waitMs?: number | undefined }

type Ended = { request_id: string; outcome: LandingOutcome }

/** A landing of the same request may come between the look and the write of this one. The next try sees it. */
const maxTries = 5

/** Outcomes by request. With a `failure`, these were committed before it; `raced` counts as not committed. */
export type Settled = { outcomes: Map<string, LandingOutcome>; failure?: { error: unknown } }

/**
 * Writes results in one statement: the states of requests, their media, flags and ends of deliveries, the change for
 * the feed, and the NOTIFY for readers. States never go back: docs/orders.md says which source overrules which.
 *
 * Takes one landing per request. First runs the short statement, then the whole one for the landings that the short one
 * left. Never throws: a failure is returned, beside the outcomes that the short statement had committed.
 */
export async function landSettling(db: Database, landings: readonly Landing[], at: At): Promise<Settled> {
  const outcomes = new Map<string, LandingOutcome>()
  try {
    const given = { ...at, waitMs: at.waitMs ?? landingLockWaitMs }
    const ordinary = landings.filter((landing) => mayBeOrdinary(landing, at.environments))
    for (const one of await run(db, ordinary, ordinaryStatement(ordinary, given))) outcomes.set(...one)
    let open = landings.filter(({ requestId }) => !outcomes.has(requestId))
    for (let tries = 1; open.length > 0 && tries <= maxTries; tries += 1) {
      const ended = await run(db, open, landingStatement(open, given))
      // Each landing has an outcome, whatever it is.
      if (ended.length < open.length) throw new NoAnswerError(`landing ${open.length} results`)
      for (const one of ended) outcomes.set(...one)
      open = open.filter(({ requestId }) => outcomes.get(requestId) === 'raced')
    }
    return { outcomes }
  } catch (error) {
    return { outcomes, failure: { error } }
  }
}

/** The same, for a caller that has nothing to do with a part: throws any failure. */
export async function land(db: Database, landings: readonly Landing[], at: At): Promise<Map<string, LandingOutcome>> {
  const { outcomes, failure } = await landSettling(db, landings, at)
  if (failure) throw failure.error
  return outcomes
}

async function run(db: Database, landings: readonly Landing[], parts: SQL): Promise<[string, LandingOutcome][]> {
  if (landings.length === 0) return []
  const statement = sql`${parts} select request_id, outcome from outcome where ${everyNotification}`
  const rows = await untilNotGivingWay(() => executePrepared<Ended>(db, statement))
  return rows.map(({ request_id, outcome }) => [request_id, outcome])
}

/**
 * Lands one result and returns what changed. With `dryRun` all of it is done, triggers and constraints included, and
 * rolled back. Where it cannot be rolled back, the statement fails before it has done anything.
 */
export async function landExplained(
  db: Database,
  written: Landing,
  { dryRun, ...at }: At & { dryRun: boolean },
): Promise<Change> {
  const result = dryRun ? sql`case when ${isTried} then change else mediadock.rolled_back(change) end` : sql`change`
  const statement = sql`
    ${landingStatement([written], { ...at, waitMs: at.waitMs ?? landingLockWaitMs })}
    select ${result} as change from (
      select jsonb_build_object(
        'request_id', outcome.request_id, 'outcome', outcome.outcome,
        'request', jsonb_build_object(
          'before', (select to_jsonb(r) - 'metadata' from mediadock.results r
                     where r.request_id = outcome.request_id),
          'after', (select to_jsonb(w) from written w)),
        'media', jsonb_build_object(
          'written', coalesce((select jsonb_agg(to_jsonb(m)) from media_written m), '[]'),
          'removed', coalesce((select jsonb_agg(to_jsonb(m)) from media_removed m), '[]'))) as change
      from outcome where ${everyNotification}) as c`
  const execute = () => (dryRun ? tried<{ change: Change }>(db, statement) : db.execute<{ change: Change }>(statement))
  const rows = await untilNotGivingWay<readonly { change: Change }[]>(execute).catch((error: unknown) => [
    { change: rolledBack(error) },
  ])
  return one(rows, `landing request ${written.requestId}`).change
}

/** The result that a dry run carried out of its rollback. Throws any other error. */
function rolledBack(error: unknown): Change {
  const cause = databaseErrorOf(error)
  if (!(cause instanceof postgres.PostgresError) || cause.code !== 'MD001') throw error
  return changeSchema.parse(JSON.parse(cause.detail ?? 'null'))
}
