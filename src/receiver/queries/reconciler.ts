import { z } from 'zod'
import { desc, eq, getTableColumns } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { processStarts, reconcileRuns } from '../domain/on-call-schema.ts'
import { backlogSchema, readBacklog, type BacklogOptions } from '../gauges/backlog.ts'
import { runTriggers } from '../reconciling/reconciler.ts'
import { paging, times } from './filters.ts'
import { matches, microsOf, readPage, type Order, type Page } from './page.ts'

const runOutcomes = ['ok', 'idle', 'error'] as const

export const reconcileRunSchema = z
  .object({
    id: z.int(),
    started_at: z.iso.datetime(),
    ended_at: z.iso.datetime(),
    duration_ms: z.int().describe('Of idle runs that share a row: from the first to the last.'),
    trigger: z.enum(runTriggers),
    outcome: z.enum(runOutcomes).describe('idle: nothing was due.'),
    idle_runs: z.int().describe('How many consecutive idle runs this row counts.'),
    scanned: z.int(),
    landed: z.int().describe('Results that were new to readers.'),
    running: z.int(),
    not_found: z.int(),
    failed: z.int(),
    postponed: z.int(),
    rate_limited: z.int().describe('Calls that were answered 429.'),
    error: z.string().nullable(),
  })
  .meta({ id: 'ReconcileRun' })
export type ReconcileRunRow = z.infer<typeof reconcileRunSchema>

export const runListSchema = z.strictObject({
  trigger: z.enum(runTriggers).optional(),
  outcome: z.enum(runOutcomes).optional(),
  ...times,
  ...paging,
})

// Ordered by id too: later idle runs update the newest row, whose place must not move.
const order: Order = { at: reconcileRuns.started_at, id: reconcileRuns.id }

/** Lists runs of the reconciler, newest first. */
export function listReconcileRuns(db: Database, query: z.infer<typeof runListSchema>): Promise<Page<ReconcileRunRow>> {
  const columns = { ...getTableColumns(reconcileRuns), micros: microsOf(order.at) }
  return readPage(db, query, {
    order,
    matching: matches(reconcileRuns, query),
    select: (tx, where) => tx.select(columns).from(reconcileRuns).where(where),
    toItem: (run) => toRun(run),
  })
}

export async function findReconcileRun(tx: Executor, id: number): Promise<ReconcileRunRow | undefined> {
  const [row] = await tx.select().from(reconcileRuns).where(eq(reconcileRuns.id, id))
  return row && toRun(row)
}

export const reconcilerSchema = z
  .object({
    silent: z.boolean().describe('True if no run has ended on any replica for `silent_after_seconds`.'),
    silent_after_seconds: z.int().nullable().describe('Null if RECONCILE_CRON runs too rarely to decide.'),
    last_run: reconcileRunSchema.nullable().describe('The latest run.'),
    backlog: backlogSchema,
  })
  .meta({ id: 'Reconciler' })
export type ReconcilerState = z.infer<typeof reconcilerSchema>

export type ReconcilerOptions = BacklogOptions & {
  /** The reconciler counts as silent when no run has ended for this long. */
  silentAfterSeconds: number | undefined
  /**
   * When this process began to watch the runs. Undefined for a command, which does not watch: the latest start of a
   * receiver is used instead.
   */
  startedAt: Date | undefined
}

export async function readReconciler(
  tx: Executor,
  { silentAfterSeconds, startedAt, ...options }: ReconcilerOptions,
): Promise<ReconcilerState> {
  const [row] = await tx.select().from(reconcileRuns).orderBy(desc(reconcileRuns.id)).limit(1)
  const last = row ? toRun(row) : null
  const lookingSince = startedAt ?? (await latestStart(tx)) ?? options.now
  const lastSignAt = Math.max(lookingSince.getTime(), last ? Date.parse(last.ended_at) : 0)
  return {
    silent: silentAfterSeconds !== undefined && options.now.getTime() - lastSignAt > silentAfterSeconds * 1000,
    silent_after_seconds: silentAfterSeconds ?? null,
    last_run: last,
    backlog: await readBacklog(tx, options),
  }
}

/** Reads the latest start of a receiver; undefined if there was none within RETENTION_DAYS. */
async function latestStart(tx: Executor): Promise<Date | undefined> {
  const { started_at } = processStarts
  const [start] = await tx.select({ started_at }).from(processStarts).orderBy(desc(started_at)).limit(1)
  return start && new Date(start.started_at)
}

function toRun(row: typeof reconcileRuns.$inferSelect): ReconcileRunRow {
  return { ...row, duration_ms: Date.parse(row.ended_at) - Date.parse(row.started_at) }
}
