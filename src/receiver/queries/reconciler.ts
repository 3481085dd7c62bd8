import { z } from 'zod'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type { Keys } from '../domain/keys.ts'
import * as onCall from '../domain/on-call-schema.ts'
import { readBacklog } from '../reconciling/backlog.ts'
import { runColumns, runTriggers } from '../reconciling/reconcile-runs.ts'
import { readWithin } from './deadline.ts'
import { paging, times, type Paging } from './filters.ts'
import { afterCursor, allOf, isoAlways, limitOf, microsOf, toPage, within, type Order, type Page } from './page.ts'

const r = columnsOf(onCall.reconcileRuns, 'r')
const starts = columnsOf(onCall.processStarts)

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

// By id alone: the newest row may be one that idle runs go on writing to, and its place must not move.
const order: Order = { at: sql`${r.started_at}`, id: sql`${r.id}`, idType: 'bigint' }

type RunRow = RowOf<typeof onCall.reconcileRuns, 'id' | (typeof runColumns)[number]> & { micros: string }

const columns = sql`${r.id}, ${microsOf(order.at)} as micros, ${list(r, ...runColumns)}`

/** Runs of the reconciler, newest first. */
export async function listReconcileRuns(
  db: Database,
  { limit, cursor, trigger, outcome, since, until }: RunFilters & Paging,
): Promise<Page<ReconcileRunRow>> {
  const chosen = allOf([
    trigger && sql`${r.trigger} = ${trigger}`,
    outcome && sql`${r.outcome} = ${outcome}`,
    within(order.at, { since, until }),
    afterCursor(cursor, order),
  ])
  const rows = await readWithin(db, (tx) =>
    tx.execute<RunRow>(sql`
      select ${columns} from mediadock.reconcile_runs r where ${chosen}
      order by ${r.started_at} desc nulls last, ${r.id} desc nulls last limit ${limitOf({ limit })}`),
  )
  return toPage(rows, { limit }, toRun)
}

export async function findReconcileRun(tx: Executor, id: number): Promise<ReconcileRunRow | undefined> {
  const [row] = await tx.execute<RunRow>(
    sql`select ${columns} from mediadock.reconcile_runs r where ${r.id} = ${id}::bigint`,
  )
  return row && toRun(row)
}

export const backlogSchema = z
  .object({
    due: z.int().meta({
      description: 'Requests that are to be polled now; counted up to 10,000 a key, and twice that with what may wait.',
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
  /** When this process began to look: before that no silence is known. Undefined of who looks in from outside: then it is the latest start of a receiver. */
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
  const [last] = await tx.execute<RunRow>(
    sql`select ${columns} from mediadock.reconcile_runs r order by ${r.id} desc limit 1`,
  )
  const [working] = await tx.execute<RunRow>(
    sql`select ${columns} from mediadock.reconcile_runs r where ${r.outcome} <> 'idle' order by ${r.id} desc limit 1`,
  )
  const lastRun = last ? toRun(last) : null
  const lookingSince = startedAt ?? (await latestStart(tx)) ?? options.now
  const lastSignAt = Math.max(lookingSince.getTime(), lastRun ? Date.parse(lastRun.ended_at) : 0)
  return {
    silent: silentAfterSeconds !== undefined && options.now.getTime() - lastSignAt > silentAfterSeconds * 1000,
    silent_after_seconds: silentAfterSeconds ?? null,
    last_run: lastRun,
    last_working_run: working ? toRun(working) : null,
    backlog: await readBacklog(tx, options),
  }
}

/** Undefined where no receiver has ever run, or none since RETENTION_DAYS. */
async function latestStart(tx: Executor): Promise<Date | undefined> {
  const rows = await tx.execute<RowOf<typeof onCall.processStarts, 'started_at'>>(sql`
    select ${list(starts, 'started_at')} from mediadock.process_starts order by ${starts.started_at} desc limit 1`)
  return rows[0] && new Date(rows[0].started_at)
}

function toRun({ micros: _micros, ...row }: RunRow): ReconcileRunRow {
  const [started_at, ended_at] = [isoAlways(row.started_at), isoAlways(row.ended_at)]
  return {
    ...row,
    id: Number(row.id),
    started_at,
    ended_at,
    duration_ms: Date.parse(ended_at) - Date.parse(started_at),
  }
}
