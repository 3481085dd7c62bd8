import postgres from 'postgres'
import { z } from 'zod'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { databaseErrorOf, NoAnswerError, one, untilNotGivingWay } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import { isTried, tried } from '../../platform/postgres/tried.ts'
import type { Environments } from '../domain/keys.ts'
import { outputOfRow } from '../domain/results-schema.ts'
import { landingStatement, mayBeOrdinary, ordinaryStatement } from './landing-statement.ts'
import type { Landing } from './landing.ts'
import { everyNotification, landingLockWaitMs } from './statement-parts.ts'

const outcomeNames = [
  'landed',
  'confirmed',
  'no_effect',
  'contradiction',
  'key_mismatch',
  'source_mismatch',
  'discarded',
  'raced',
] as const

/**
 * - `landed`: the row became terminal or complete, or was overruled by the provider's result or a live webhook
 * - `confirmed`: the provider's result adds nothing to the complete content of the webhook, such as an ERROR
 * - `no_effect`: the row contains this already
 * - `contradiction`: another terminal state stands. The delivery is flagged and the row not changed
 * - `key_mismatch`: signed with a key of the other environment, and parked
 * - `source_mismatch`: the request belongs to another source than the delivery, which is parked
 * - `discarded`: a mismatch, but `maxParkedForRequest` deliveries of the request are parked for it already. It is deleted
 * - `raced`: the row appeared or landed at the same moment. Nothing was written; try again
 */
export type LandingOutcome = (typeof outcomeNames)[number]

const row = z.record(z.string(), z.unknown())
const changeSchema = z.object({
  request_id: z.string(),
  outcome: z.enum(outcomeNames),
  request: z.object({ before: row.nullable(), after: row.nullable() }),
  media: z.object({ written: z.array(row), removed: z.array(row) }),
})

/** The rows that a landing has written. */
export type Change = z.infer<typeof changeSchema>

/** `now`: the time that replicas share (time.ts). `waitMs`: how long to wait for a locked row. */
type At = { now: SQL; environments: Environments; waitMs?: number | undefined }

type Ended = { request_id: string; outcome: LandingOutcome }

/** Outcomes by request. With a `failure`, they were committed before it, except `raced`. */
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
    const ordinary = landings.filter(mayBeOrdinary)
    for (const one of await run(db, ordinary, ordinaryStatement(ordinary, given))) outcomes.set(...one)
    let open = landings.filter(({ requestId }) => !outcomes.has(requestId))
    // Another landing of the request may come between reading and writing. The next try sees it.
    for (let tries = 1; open.length > 0 && tries <= 5; tries += 1) {
      const ended = await run(db, open, landingStatement(open, given))
      // Every landing must have an outcome.
      if (ended.length < open.length) throw new NoAnswerError(`landing ${open.length} results`)
      for (const one of ended) outcomes.set(...one)
      open = open.filter(({ requestId }) => outcomes.get(requestId) === 'raced')
    }
    return { outcomes }
  } catch (error) {
    return { outcomes, failure: { error } }
  }
}

/** Lands results like landSettling(), but throws any failure. For callers that cannot use a partial result. */
export async function land(db: Database, landings: readonly Landing[], at: At): Promise<Map<string, LandingOutcome>> {
  const { outcomes, failure } = await landSettling(db, landings, at)
  if (failure) throw failure.error
  return outcomes
}

async function run(db: Database, landings: readonly Landing[], parts: SQL): Promise<[string, LandingOutcome][]> {
  if (landings.length === 0) return []
  const statement = sql`${parts} select request_id, actual_outcome as outcome from outcome where ${everyNotification}`
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

/**
 * Lands one result and returns the changes. With `dryRun` everything is done, including triggers and constraints, and
 * rolled back. If a rollback is not possible, the statement fails at its beginning.
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
        'request_id', outcome.request_id, 'outcome', outcome.actual_outcome,
        'request', jsonb_build_object(
          'before', (select to_jsonb(r) - 'metadata' from mediadock.results r
                     where r.request_id = outcome.request_id),
          'after', (select to_jsonb(w) || case when w.output is null and w.status = 'COMPLETED'
              then jsonb_build_object('output', ${outputOfRow(sql`media_written`)}) else '{}' end from written w)),
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

/** Extracts the result that a dry run carries out of its rollback. Throws any other error. */
function rolledBack(error: unknown): Change {
  const cause = databaseErrorOf(error)
  if (!(cause instanceof postgres.PostgresError) || cause.code !== 'MD001') throw error
  return changeSchema.parse(JSON.parse(cause.detail ?? 'null'))
}
