import postgres from 'postgres'
import { z } from 'zod'
import { eq, sql } from '../../platform/postgres/drizzle.ts'
import { databaseErrorOf, one, retryConflicts } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { isTried, tried } from '../../platform/postgres/tried.ts'
import { parseBody } from '../domain/delivery.ts'
import { fromStored } from '../domain/environment.ts'
import { sourceOf } from '../domain/keys.ts'
import { pollIncomplete } from '../domain/poll-schedule.ts'
import { outputOfRow } from '../domain/results-schema.ts'
import * as schema from '../domain/schema.ts'
import { pathIn } from '../domain/webhook-path.ts'
import { joinSubmitOf } from './claiming.ts'
import { landingOutcomes } from './effects.ts'
import { generalStatement } from './general-sql.ts'
import { applyHint } from './hint.ts'
import { judge, type LandingAt } from './judge.ts'
import { maxTries } from './land-reports.ts'
import type { LandingDeps } from './landing-deps.ts'
import { everyNotification } from './parts-sql.ts'
import { refineRulings } from './refine-rulings.ts'
import { deliveredReport, type ReportToLand } from './report-to-land.ts'

const rowSchema = z.record(z.string(), z.unknown())
const changeSchema = z.object({
  request_id: z.string(),
  outcome: z.enum(landingOutcomes),
  request: z.object({ before: rowSchema.nullable(), after: rowSchema.nullable() }),
  media: z.object({ written: z.array(rowSchema), removed: z.array(rowSchema) }),
})

/** The rows that a landing has written. */
export type Change = z.infer<typeof changeSchema>

/**
 * Processes a stored delivery again, and returns its changes; undefined for an unknown delivery. Landing it again
 * changes nothing that already stands. A dry run lands in the same way, including triggers, and rolls it back, so its
 * changes, or its error, are those of a replay. But it does not end the submit that the URL of the webhook names.
 */
export async function replayDelivery(
  deps: LandingDeps,
  id: string,
  { dryRun }: { dryRun: boolean },
): Promise<Change[] | undefined> {
  const delivery = await load(deps.db, id)
  if (!delivery) return undefined
  const parsed = parseBody(sourceOf(deps.keys(), delivery.sourceName), delivery.body)
  // It stays parked, since this version cannot parse it either.
  if (parsed.kind === 'unreadable') return []
  if (!dryRun) await joinSubmitOf(deps, delivery, parsed.jobId)
  if (parsed.kind === 'hint') {
    // It changes no result, only when the request is polled.
    if (!dryRun) await applyHint(deps, delivery, parsed)
    return []
  }
  const report = deliveredReport(delivery, parsed.report, deps.mediaHosts)
  for (let tries = 1; ; tries += 1) {
    const change = await landExplained(deps.db, report, { now: deps.time(), keys: deps.keys, dryRun })
    if (change.outcome === 'raced' && tries < maxTries) continue
    if (!dryRun) {
      if (change.outcome === 'no_effect' && !report.media_complete)
        await deps.db.execute(pollIncomplete(deps.time(), sql`array[${report.request_id}::uuid]`))
      deps.logger.info({ delivery_id: id, request_id: report.request_id, outcome: change.outcome }, 'delivery replayed')
      deps.onProcessed({ report, outcome: change.outcome, receivedAt: undefined })
    }
    return changedNothing(delivery, change.outcome) ? [] : [change]
  }
}

/**
 * The result had landed before, or the outcome is the one that the delivery shows already: it is parked for this
 * reason, or flagged for this contradiction. Readers of the changes would otherwise see an old mismatch as a new one.
 */
function changedNothing({ parkedReason, flags }: Loaded, outcome: Change['outcome']): boolean {
  const shown = parkedReason ?? flags.find((flag) => flag === 'contradiction')
  return outcome === 'no_effect' || outcome === shown
}

type Loaded = NonNullable<Awaited<ReturnType<typeof load>>>

async function load(db: Database, id: string) {
  const d = schema.deliveries
  const [row] = await db
    .select({
      deliveryId: d.id,
      webhookId: d.webhook_id,
      sourceName: d.source_name,
      keyName: d.key_name,
      environment: d.environment,
      body: d.body,
      parkedReason: d.parked_reason,
      flags: d.flags,
      headers: d.headers,
    })
    .from(d)
    .where(eq(d.id, id))
  return (
    row && {
      ...row,
      environment: fromStored(row.environment),
      idempotencyKey: pathIn(row.headers).idempotencyKey,
      claims: undefined,
    }
  )
}

/** SQL: the values that the view `results` makes from the row `w` of `written`, which has ended, and its media. */
const valuesOfEnd = sql`jsonb_build_object('queue_position', null)
            || case when w.status = 'COMPLETED' then jsonb_build_object(
              'progress', 100, 'output', coalesce(w.output, ${outputOfRow(sql`media_written`)})) else '{}' end`

/**
 * Lands one report and returns the changes. With `dryRun` everything is done, including triggers and constraints, and
 * rolled back. Where nothing would roll the statement back, it fails with the change as the detail of its error.
 */
export async function landExplained(
  db: Database,
  report: ReportToLand,
  { dryRun, ...at }: LandingAt & { dryRun: boolean },
): Promise<Change> {
  const result = dryRun ? sql`case when ${isTried} then change else mediadock.rolled_back(change) end` : sql`change`
  const statement = sql`
    ${generalStatement(await refineRulings(db, await judge(db, [report], at)), at)}
    select ${result} as change from (
      select jsonb_build_object(
        'request_id', outcomes.request_id, 'outcome', outcomes.outcome,
        'request', jsonb_build_object(
          'before', was.result,
          'after', (select coalesce(was.result, '{}') || to_jsonb(w) || ${valuesOfEnd} from written w)),
        'media', jsonb_build_object(
          'written', coalesce((select jsonb_agg(to_jsonb(m)) from media_written m), '[]'),
          'removed', coalesce((select jsonb_agg(to_jsonb(m)) from media_removed m), '[]'))) as change
      from outcomes left join lateral (
        select to_jsonb(r) - 'metadata' as result from mediadock.results r
        where r.request_id = outcomes.request_id limit 1) as was on true
      where ${everyNotification}) as c`
  const execute = () => (dryRun ? tried<{ change: Change }>(db, statement) : db.execute<{ change: Change }>(statement))
  const rows = await retryConflicts<readonly { change: Change }[]>(execute).catch((error: unknown) => [
    { change: rolledBack(error) },
  ])
  return one(rows, `landing request ${report.request_id}`).change
}

/** Extracts the result that a dry run carries out of its rollback. Throws any other error. */
function rolledBack(error: unknown): Change {
  const cause = databaseErrorOf(error)
  if (!(cause instanceof postgres.PostgresError) || cause.code !== 'MD001') throw error
  return changeSchema.parse(JSON.parse(cause.detail ?? 'null'))
}
