import { z } from 'zod'
import { and, desc, eq, getTableColumns, ne, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { Keys } from '../domain/keys.ts'
import { processStarts, reconcileRuns } from '../domain/on-call-schema.ts'
import { readBacklog } from '../reconciling/backlog.ts'
import { runTriggers } from '../reconciling/reconcile-runs.ts'
import { readWithin } from './deadline.ts'
import { paging, times, type Paging } from './filters.ts'
import { afterCursor, equals, limitOf, microsOf, newestFirst, toPage, within, type Order, type Page } from './page.ts'

export const runOutcomes = ['ok', 'idle', 'error'] as const

export const reconcileRunSchema = z
  .object({
    id: z.int(),
    started_at: z.iso.datetime(),
    ended_at: z.iso.datetime(),
    duration_ms: z
      .int()
      .meta({ description: 'Of idle runs that share a row: from the start of the first to the end of the last.' }),
    trigger: z.enum(runTriggers),
    outcome: z.enum(runOutcomes).meta({ description: 'idle: nothing was due.' }),
    idle_runs: z.int().meta({ description: 'How many idle runs, one after the other, this row stands for.' }),
    scanned: z.int(),
    landed: z.int(),
    running: z.int(),
    not_found: z.int(),
    failed: z.int(),
    postponed: z.int(),
    rate_limited: z.int().meta({ description: 'Calls that were answered 429.' }),
    error: z.string().nullable(),
  })
  .meta({ id: 'ReconcileRun' })
export type ReconcileRunRow = z.infer<typeof reconcileRunSchema>

const runFiltersSchema = z.strictObject({
  trigger: z.enum(runTriggers, `must be one of ${runTriggers.join(', ')}`).optional(),
  outcome: z.enum(runOutcomes, `must be one of ${runOutcomes.join(', ')}`).optional(),
  ...times,
})
export type RunFilters = z.infer<typeof runFiltersSchema>
export const runListSchema = runFiltersSchema.extend(paging)

// By id too: the newest row may be one that idle runs go on writing to, and its place must not move.
const order: Order = { at: reconcileRuns.started_at, id: reconcileRuns.id }

/** Runs of the reconciler, newest first. */
export async function listReconcileRuns(
  db: Database,
  { limit, cursor, trigger, outcome, since, until }: RunFilters & Paging,
): Promise<Page<ReconcileRunRow>> {
  const chosen = and(
    equals(reconcileRuns.trigger, trigger),
    equals(reconcileRuns.outcome, outcome),
    within(order.at, { since, until }),
    afterCursor(cursor, order),
  )
  const rows = await readWithin(db, (tx) =>
    tx
      .select({ ...getTableColumns(reconcileRuns), micros: microsOf(order.at) })
      .from(reconcileRuns)
      .where(chosen)
      .orderBy(newestFirst(order))
      .limit(limitOf({ limit })),
  )
  return toPage(rows, { limit }, ({ micros: _micros, ...row }) => toRun(row))
}

export async function findReconcileRun(tx: Executor, id: number): Promise<ReconcileRunRow | undefined> {
  const [row] = await tx.select().from(reconcileRuns).where(eq(reconcileRuns.id, id))
  return row && toRun(row)
}

/** The run that began last; with `condition`, of those. */
async function lastRun(tx: Executor, condition?: SQL): Promise<ReconcileRunRow | null> {
  const [row] = await tx.select().from(reconcileRuns).where(condition).orderBy(desc(reconcileRuns.id)).limit(1)
  return row ? toRun(row) : null
}

export const backlogSchema = z
  .object({
    due: z.int().meta({
      description: 'Requests that are to be polled now; counted up to 10,000 a key.',
    }),
    minutes: z
      .int()
      .meta({ description: 'How long that takes within the budget of the keys; at least, where due_capped is true.' }),
    incomplete: z.int().meta({ description: 'Results that have landed and are not complete yet; counted likewise.' }),
    per_minute: z.int().meta({
      description:
        'How many results can be completed in a minute within the budget of all keys, beside as many submits as in the last minute.',
    }),
    complete_by: z.iso.datetime().nullable().meta({
      description:
        'When all of them will be complete at that pace; the earliest such time where incomplete_capped is true. Null where none is incomplete.',
    }),
    due_capped: z.boolean().meta({ description: 'Whether more are due than were counted.' }),
    incomplete_capped: z.boolean().meta({ description: 'Whether more are incomplete than were counted.' }),
  })
  .meta({ id: 'Backlog' })

export const reconcilerSchema = z
  .object({
    silent: z
      .boolean()
      .meta({ description: 'No run has ended for much longer than RECONCILE_CRON says, on any replica.' }),
    silent_after_seconds: z
      .int()
      .nullable()
      .meta({ description: 'Null where RECONCILE_CRON runs too seldom to tell.' }),
    last_run: reconcileRunSchema.nullable().meta({ description: 'The run that ended last.' }),
    last_working_run: reconcileRunSchema.nullable().meta({ description: 'The last one that had something to do.' }),
    backlog: backlogSchema,
  })
  .meta({ id: 'Reconciler' })
export type ReconcilerState = z.infer<typeof reconcilerSchema>

export type ReconcilerOptions = {
  now: Date
  stuckAfterSeconds: number
  fetchRatePerMinute: number
  keys: Keys
  /** How long no run may end before that is a fault. */
  silentAfterSeconds: number | undefined
  /**
   * When this process began to watch the runs. Undefined for a command, which watches none: the latest start of a receiver
   * is taken instead.
   */
  startedAt: Date | undefined
}

export async function readReconciler(db: Database, options: ReconcilerOptions): Promise<ReconcilerState> {
  return readWithin(db, (tx) => reconcilerState(tx, options))
}

/** The same inside another read. */
export async function reconcilerState(
  tx: Executor,
  { silentAfterSeconds, startedAt, ...options }: ReconcilerOptions,
): Promise<ReconcilerState> {
  const last = await lastRun(tx)
  const lookingSince = startedAt ?? (await latestStart(tx)) ?? options.now
  const lastSignAt = Math.max(lookingSince.getTime(), last ? Date.parse(last.ended_at) : 0)
  return {
    silent: silentAfterSeconds !== undefined && options.now.getTime() - lastSignAt > silentAfterSeconds * 1000,
    silent_after_seconds: silentAfterSeconds ?? null,
    last_run: last,
    last_working_run: await lastRun(tx, ne(reconcileRuns.outcome, 'idle')),
    backlog: await readBacklog(tx, options),
  }
}

/** Undefined where no receiver has ever run, or none since RETENTION_DAYS. */
async function latestStart(tx: Executor): Promise<Date | undefined> {
  const { started_at } = processStarts
  const [start] = await tx.select({ started_at }).from(processStarts).orderBy(desc(started_at)).limit(1)
  return start && new Date(start.started_at)
}

function toRun(row: typeof reconcileRuns.$inferSelect): ReconcileRunRow {
  return { ...row, duration_ms: Date.parse(row.ended_at) - Date.parse(row.started_at) }
}
