import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { NoAnswerError, retryConflicts } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import { everyNotification, type LandingAt } from './parts-sql.ts'
import type { ReportToLand } from './report-to-land.ts'
import { shortStatement } from './short-sql.ts'
import { wholeStatement } from './whole-sql.ts'

/*
 * Runs the short statement (short-sql.ts) for ordinary deliveries, which are those that it can land, and the whole one
 * (whole-sql.ts) for all others. docs/decisions/two-statements.md lists the reasons.
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
 * whole-sql.ts lists the effects of each outcome.
 *
 * - `landed`: the row became terminal or complete, or was overruled: see rules-sql.ts
 * - `agreed`: the provider's result confirms what readers have: see `outcomes` of whole-sql.ts. It is confirmed, without
 *   a change for readers
 * - `no_effect`: the request has ended in this state already; the content is not compared. Also for a replay of a
 *   delivery with a key mismatch, once the request is confirmed
 * - `contradiction`: another terminal state stands. The delivery is flagged, and the end of the row stays
 * - `key_mismatch`: signed with a key of the other environment, or of an unknown one, and parked
 * - `source_mismatch`: the request belongs to another source than the delivery, which is parked
 * - `discarded`: a mismatch, but `maxParkedForRequest` deliveries of the request are parked for it already. It is
 *   deleted
 * - `raced`: the row appeared or changed at the same moment. The result was not written; try again
 */
export type LandingOutcome = (typeof landingOutcomes)[number]

type Answer = { request_id: string; outcome: LandingOutcome }
/** By request. */
type Outcomes = Map<string, LandingOutcome>
/** With a `failure`, the outcomes were committed before it, except `raced`. */
type UntilFailure = { outcomes: Outcomes; failure?: { error: unknown } }

/**
 * Each result is written by exactly one of two statements, whole or not at all: the state of its request, its media,
 * flags and ends of deliveries, the change for the feed, and the NOTIFY for readers. States never go back:
 * docs/orders.md says which end overrules which.
 *
 * Takes one report per request: `takeBatch` of in-flight.ts leaves the others waiting. First runs the short statement,
 * then the whole one for the landings that the short one left. Never throws: a failure is returned, beside the outcomes
 * that the short statement had committed.
 */
export async function landUntilFailure(
  db: Database,
  reports: readonly ReportToLand[],
  at: LandingAt,
): Promise<UntilFailure> {
  const outcomes: Outcomes = new Map()
  try {
    const ordinary = reports.filter(mayBeOrdinary)
    for (const one of await run(db, ordinary, shortStatement(ordinary, at))) outcomes.set(...one)
    let left = reports.filter(({ request_id: id }) => !outcomes.has(id))
    // Another landing of the request may come between reading and writing. The next try sees it.
    for (let tries = 1; left.length > 0 && tries <= 5; tries += 1) {
      const found = await run(db, left, wholeStatement(left, at))
      // Every report must have an outcome.
      if (found.size < left.length) throw new NoAnswerError(`landing ${left.length} results`)
      for (const one of found) outcomes.set(...one)
      left = left.filter(({ request_id: id }) => outcomes.get(id) === 'raced')
    }
    return { outcomes }
  } catch (error) {
    return { outcomes, failure: { error } }
  }
}

/** Lands results like landUntilFailure(), but throws any failure. For callers that cannot use a partial result. */
export async function landOrThrow(db: Database, reports: readonly ReportToLand[], at: LandingAt): Promise<Outcomes> {
  const { outcomes, failure } = await landUntilFailure(db, reports, at)
  if (failure) throw failure.error
  return outcomes
}

async function run(db: Database, reports: readonly ReportToLand[], ctes: SQL): Promise<Outcomes> {
  if (reports.length === 0) return new Map()
  const statement = sql`${ctes} select request_id, outcome from outcomes where ${everyNotification}`
  const rows = await retryConflicts(() => executePrepared<Answer>(db, statement))
  return new Map(rows.map(({ request_id, outcome }) => [request_id, outcome]))
}

/** Returns false if the report alone shows that it needs the whole statement. */
function mayBeOrdinary({ via, flags }: ReportToLand): boolean {
  return via === 'delivery' && flags.length === 0
}
