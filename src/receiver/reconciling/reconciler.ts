import cron from 'node-cron'
import type { Counter } from 'prom-client'
import { withDeadline } from '../../platform/deadline.ts'
import { desc, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { faultOf, one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { readTime, type SharedTime } from '../../platform/postgres/time.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import * as onCall from '../domain/on-call-schema.ts'
import { pollEndings, type PollEnding, type RunCounter } from '../domain/poll-endings.ts'
import { createRestingQueues, duePolls, duePollsOfRuns, type RestingQueues } from './due.ts'
import { claimDue, claimOne } from './poll-claims.ts'
import { beginPolls, poll, type PollingDeps } from './polling.ts'

/*
 * Runs of the reconciler, which a tick of RECONCILE_CRON or an operator starts. The poller (poller.ts) makes most polls
 * between them. Only runs make the first poll of an overdue request, and poll those of unknown keys. Each run is
 * counted, logged and stored.
 */

/** The number of the requests of a run, and of its polls by their endings. */
export type ReconcileRun = Record<'scanned' | RunCounter, number>

export const runTriggers = ['cron', 'manual'] as const

type RunTrigger = (typeof runTriggers)[number]

type ReportedRunDeps = PollingDeps & { runs: Counter<'outcome'> }

/** Does a whole run, and counts, logs and stores it, also if it fails. Returns its counts and the id of its row. */
export async function runReported(
  { runs, ...deps }: ReportedRunDeps,
  trigger: RunTrigger,
  signal: AbortSignal,
): Promise<{ id: number; run: ReconcileRun }> {
  const { logger } = deps
  const started = performance.now()
  const ms = () => Math.round(performance.now() - started)
  try {
    // Ticks do not overlap, so a run that never ended would block all later ones.
    const work = (run: ReconcileRun) => withDeadline(runOnce(deps, signal, run), 600_000, 'a reconcile run')
    const ended = await recorded(deps, trigger, work)
    runs.inc({ outcome: 'ok' })
    const { notFound, rateLimited, ...counts } = ended.run
    logger.info(
      { run_id: ended.id, trigger, ...counts, not_found: notFound, rate_limited: rateLimited, ms: ms() },
      'reconcile run ended',
    )
    return ended
  } catch (error) {
    runs.inc({ outcome: 'error' })
    logger.error({ err: error, trigger, ms: ms() }, 'reconcile run failed, the next tick tries again')
    throw error
  }
}

/** Runs `work`, which counts in the run, and stores the run, also if it fails. Returns its counts and its row's id. */
export async function recorded(
  { db, time }: { db: Database; time: SharedTime },
  trigger: RunTrigger,
  work: (run: ReconcileRun) => Promise<unknown>,
): Promise<{ id: number; run: ReconcileRun }> {
  const startedAt = await readTime(db, time)
  const run = newRun()
  const store = (error?: string) => storeRun(db, { trigger, startedAt, endedAt: time(), run, error })
  await work(run).catch(async (error: unknown) => {
    // If Postgres is unreachable, the failure cannot be stored.
    await store(failureWords(error)).catch(() => {})
    throw error
  })
  return { id: await store(), run }
}

type EndedRun = { trigger: RunTrigger; startedAt: Date; endedAt: SQL; run: ReconcileRun; error: string | undefined }

/**
 * Stores a run in one statement and returns the id of its row. Consecutive idle runs share one row, so that a run every
 * 30 s does not fill the table.
 */
async function storeRun(db: Database, { trigger, startedAt, endedAt, run, error }: EndedRun): Promise<number> {
  const { scanned, landed, running, notFound, failed, postponed, rateLimited } = run
  const idle = trigger === 'cron' && error === undefined && scanned === 0
  const outcome = error !== undefined ? 'error' : idle ? 'idle' : 'ok'
  const rows = await db.execute<RowOf<typeof onCall.reconcileRuns, 'id'>>(sql`
    with counted as (
      update mediadock.reconcile_runs set idle_runs = idle_runs + 1, ended_at = greatest(ended_at, ${endedAt})
      where ${idle} and outcome = 'idle' and id = (select max(id) from mediadock.reconcile_runs)
      returning id
    ),
    written as (
      insert into mediadock.reconcile_runs (started_at, ended_at, trigger, outcome, idle_runs, error,
        scanned, landed, running, not_found, failed, postponed, rate_limited)
      select ${startedAt.toISOString()}::timestamptz, ${endedAt}, ${trigger}, ${outcome}, ${idle ? 1 : 0},
        ${error ?? null}, ${scanned}, ${landed}, ${running}, ${notFound}, ${failed}, ${postponed}, ${rateLimited}
      where not exists (select from counted)
      returning id
    )
    select id from counted union all select id from written`)
  return Number(one(rows, 'storing a run of the reconciler').id)
}

const claimRows = 16

/**
 * One run: polls everything that is due or overdue, as far as the keys' budgets allow, and counts in `run`. The state in
 * Postgres decides, so a missed tick loses nothing, and any number of replicas share the work.
 */
export async function runOnce(deps: PollingDeps, signal?: AbortSignal, run = newRun()): Promise<ReconcileRun> {
  // Poll queues without calls wait for the next run; others continue.
  const resting = createRestingQueues(deps, Infinity)
  // The limit of one run. The next tick continues.
  while (run.scanned < 2000 && !signal?.aborted) {
    if ((await pollSome(deps, resting, run)) === 0) break
  }
  return run
}

/**
 * Polls some requests, and returns their number. Those that were never polled may be unknown to the provider, so those
 * that it knows get their calls first. Their polls begin before the second claim, since that may fail: without a poll,
 * they would stay claimed.
 */
async function pollSome(deps: PollingDeps, resting: RestingQueues, run: ReconcileRun): Promise<number> {
  const begin = async (find: typeof duePolls) => {
    const due = await claimDue(deps, { limit: claimRows, ...resting.queues() }, find)
    return beginPolls(deps, due, resting)
  }
  const known = await begin(duePolls)
  const others = await begin(duePollsOfRuns).catch(async (error: unknown) => {
    await countAll(deps, run, known)
    throw error
  })
  return countAll(deps, run, [...known, ...others])
}

/** Counts each poll when it ends. If Postgres failed, throws once all have ended. */
async function countAll({ logger }: PollingDeps, run: ReconcileRun, polls: Promise<PollEnding>[]): Promise<number> {
  const counted = polls.map(async (polled) => {
    try {
      count(run, await polled)
    } catch (error) {
      if (faultOf(error) === 'server') throw error
      // The failure concerns only this request.
      run.scanned += 1
      run.failed += 1
      logger.error(
        { err: error },
        'the ending of a poll could not be written, the request is polled again after its lease expires',
      )
    }
  })
  for (const one of await Promise.allSettled(counted)) if (one.status === 'rejected') throw one.reason
  return polls.length
}

/** Polls one request now, regardless of its schedule. Undefined if it is not tracked or its row stays locked. */
export async function reconcileOne(deps: PollingDeps, requestId: string): Promise<PollEnding | undefined> {
  const claimed = await claimOne(deps, requestId)
  // An operator's poll may take any call, also for an unknown request.
  return claimed && poll(deps, { ...claimed, is_unknown: false })
}

/** Returns the counts of a run that made one poll. */
export function runOf(ending: PollEnding): ReconcileRun {
  const run = newRun()
  count(run, ending)
  return run
}

function newRun(): ReconcileRun {
  return { scanned: 0, landed: 0, running: 0, notFound: 0, failed: 0, postponed: 0, rateLimited: 0 }
}

function count(run: ReconcileRun, ending: PollEnding): void {
  run.scanned += 1
  for (const counter of pollEndings[ending].counters) run[counter] += 1
}

/** Returns the end of the latest run on any replica, failed ones included; undefined before the first. */
export async function lastRunEndedAt(db: Database): Promise<Date | undefined> {
  const { id, ended_at } = onCall.reconcileRuns
  const [last] = await db.select({ ended_at }).from(onCall.reconcileRuns).orderBy(desc(id)).limit(1)
  return last && new Date(last.ended_at)
}

/** Returns after how long without a run the reconciler counts as silent; undefined if it runs too rarely to decide. */
export function silentAfterSeconds(reconcileCron: string): number | undefined {
  const [next, after] = cron.createTask(reconcileCron, () => {}).getNextRuns(2)
  if (!next || !after) return undefined
  // A run may take long, and a tick may be missed.
  const seconds = ((after.getTime() - next.getTime()) / 1000) * 3
  return seconds > 86_400 ? undefined : Math.max(300, seconds)
}
