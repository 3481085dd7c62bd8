import { sql } from '../../platform/postgres/drizzle.ts'
import { NoAnswerError, retryConflicts } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import type { LandingOutcome } from './effects.ts'
import { generalStatement } from './general-sql.ts'
import { judge, type JudgedReport, type LandingAt } from './judge.ts'
import { ordinaryStatement } from './ordinary-sql.ts'
import { everyNotification } from './parts-sql.ts'
import { refineRulings } from './refine-rulings.ts'
import type { ReportToLand } from './report-to-land.ts'

/*
 * Lands reports with two statements. The ordinary one (ordinary-sql.ts) takes a delivery that gives its request the first
 * end, if no other delivery names the request or has the same webhook id. Nearly all are so. The general one
 * (general-sql.ts) takes all others. docs/decisions/two-statements.md has the reasons.
 */

type Answer = { request_id: string; outcome: LandingOutcome }
/**
 * `outcomes`: by request. With a `failure`, the reports with an outcome other than `raced` are committed. Those without
 * one may be, if the answer of Postgres was lost: landing them again has no effect.
 */
type Landed = { outcomes: Map<string, LandingOutcome>; failure?: { error: unknown } }

/** The most tries for a report. One fails if another transaction changes the row after it was judged. */
export const maxTries = 5

/**
 * Lands reports: reads and judges the rows of their requests, and writes the verdicts. Each result is written by one
 * statement, whole or not at all: the state of its request, its media, flags and ends of deliveries, the change for the
 * feed, and the NOTIFY for readers. States never go back: docs/orders.md says which end overrules which.
 *
 * Takes one report per request: `takeBatch` of in-flight.ts leaves the others waiting. Never throws: a failure is
 * returned, beside the outcomes that were committed before it.
 */
export async function landReports(db: Database, reports: readonly ReportToLand[], at: LandingAt): Promise<Landed> {
  const outcomes: Landed['outcomes'] = new Map()
  try {
    let left = reports
    for (let tries = 1; left.length > 0; tries += 1) {
      for await (const [id, outcome] of tryOnce(db, left, at))
        if (outcome !== 'raced' || tries === maxTries) outcomes.set(id, outcome)
      left = left.filter(({ request_id: id }) => !outcomes.has(id))
    }
    return { outcomes }
  } catch (error) {
    return { outcomes, failure: { error } }
  }
}

/** Lands one report, and throws its failure. */
export async function landOne(db: Database, report: ReportToLand, at: LandingAt): Promise<LandingOutcome> {
  const { outcomes, failure } = await landReports(db, [report], at)
  const outcome = outcomes.get(report.request_id)
  if (outcome === undefined) throw failure?.error ?? new NoAnswerError(`landing request ${report.request_id}`)
  return outcome
}

/** Yields the outcome of each report, as soon as it is committed. */
async function* tryOnce(db: Database, reports: readonly ReportToLand[], at: LandingAt) {
  const judged = await judge(db, reports, at)
  const landed = new Map(await run(db, judged.filter(mayBeOrdinary), at, ordinaryStatement))
  yield* landed
  const others = judged.filter(({ request_id: id }) => !landed.has(id))
  if (others.length === 0) return
  const outcomes = await run(db, await refineRulings(db, others), at, generalStatement)
  yield* outcomes
  if (outcomes.length < others.length) throw new NoAnswerError(`landing ${others.length} results`)
}

async function run(
  db: Database,
  judged: readonly JudgedReport[],
  at: LandingAt,
  ctes: typeof generalStatement,
): Promise<[string, LandingOutcome][]> {
  if (judged.length === 0) return []
  const statement = sql`${ctes(judged, at)} select request_id, outcome from outcomes where ${everyNotification}`
  const rows = await retryConflicts(() => executePrepared<Answer>(db, statement))
  return rows.map(({ request_id: id, outcome }) => [id, outcome])
}

/** Returns false if the general statement must write it. The ordinary one also leaves what its `isAlone` excludes. */
function mayBeOrdinary({ via, flags, ruling, was_landed: wasLanded }: JudgedReport): boolean {
  return via === 'delivery' && flags.length === 0 && ruling === 'landed' && !wasLanded
}
