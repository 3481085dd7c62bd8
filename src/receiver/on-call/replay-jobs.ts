import { randomUUID } from 'node:crypto'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import { isOutage } from '../../platform/postgres/errors.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import * as onCall from '../domain/on-call-schema.ts'
import type { Change } from '../landing/land.ts'
import type { WorkerDeps } from '../landing/worker.ts'
import { readWithin } from '../queries/deadline.ts'
import { deliveryFiltersSchema, parseFilters } from '../queries/filters.ts'
import { isoAlways } from '../queries/page.ts'
import { writeAudit } from '../upkeep/audit.ts'
import { groupFailures, type Failures } from './failures.ts'
import { replayMany, type ReplayedMany } from './replay-many.ts'

const jobs = columnsOf(onCall.replayJobs)

/** Replays that run or wait at the same time, over all replicas. */
export const maxRunning = 4
const maxShown = 50
/** Of one change: a page shows them all. */
const maxShownBytes = 32 * 1024
const maxFailureKinds = 20
/** Deliveries between two looks at whether to go on. */
const roundRows = 40
const roundMs = 10_000
/** Much longer than a round: a call of the provider's may take 10 s. */
const leaseSeconds = 60

/** One replay of many, as far as it is. */
export type ReplayJob = {
  id: string
  /** The filters as the address has them. */
  query: Readonly<Record<string, string>>
  actor: string
  /** How many the filters chose when it began. */
  count: number
  state: 'running' | 'done' | 'stopped' | 'broken'
  stopping: boolean
  startedAt: string
  endedAt: string | undefined
  replayed: number
  changed: number
  failed: number
  /** The first of them. */
  changes: readonly Change[]
  failures: readonly Failures[]
  /** Why it broke off. */
  problem: string | undefined
}

const shown = [
  'id',
  'filters',
  'actor',
  'count',
  'state',
  'stopping',
  'started_at',
  'ended_at',
  'replayed',
  'changed',
  'failed',
  'changes',
  'failures',
  'problem',
] as const
type Row = RowOf<typeof onCall.replayJobs, Exclude<(typeof shown)[number], 'changes'>> & { changes: Change[] }

function toJob({ filters, started_at, ended_at, changes, problem, ...row }: Row): ReplayJob {
  return {
    ...row,
    query: filters,
    startedAt: isoAlways(started_at),
    endedAt: ended_at === null ? undefined : isoAlways(ended_at),
    changes,
    problem: problem ?? undefined,
  }
}

/** Begins a replay, for whichever process is free; undefined where as many run already as may. */
export async function startReplay(
  db: Database,
  { query, count, actor, now }: { query: ReplayJob['query']; count: number; actor: string; now: Date },
): Promise<string | undefined> {
  const at = sql`${now.toISOString()}::timestamptz`
  const rows = await db.execute<RowOf<typeof onCall.replayJobs, 'id'>>(sql`
    insert into mediadock.replay_jobs (${list(jobs, 'id', 'started_at', 'actor', 'filters', 'count', 'state', 'leased_until')})
    select ${randomUUID()}::uuid, ${at}, ${actor}, ${JSON.stringify(query)}::jsonb, ${count}::int, 'running', ${at}
    where (select count(*) from mediadock.replay_jobs where ${jobs.state} = 'running') < ${maxRunning}
    returning ${jobs.id}`)
  return rows[0]?.id
}

export async function findReplay(db: Database, id: string): Promise<ReplayJob | undefined> {
  const [row] = await readWithin(db, (tx) =>
    tx.execute<Row>(sql`select ${list(jobs, ...shown)} from mediadock.replay_jobs where ${jobs.id} = ${id}::uuid`),
  )
  return row && toJob(row)
}

const maxListed = 50

/** The latest, those that run first. */
export async function listReplays(tx: Executor, { running = false }: { running?: boolean } = {}): Promise<ReplayJob[]> {
  const rows = await tx.execute<Row>(sql`
    select ${list(jobs, ...shown)} from mediadock.replay_jobs where ${running ? sql`${jobs.state} = 'running'` : sql`true`}
    order by ${jobs.state} = 'running' desc, ${jobs.started_at} desc limit ${maxListed}`)
  return rows.map(toJob)
}

/** Asks whoever works on it to stop; what has been replayed stays. */
export async function stopReplay(db: Database, id: string): Promise<void> {
  await db.execute(
    sql`update mediadock.replay_jobs set ${jobs.stopping} = true where ${jobs.id} = ${id}::uuid and ${jobs.state} = 'running'`,
  )
}

export type ReplayWorkerDeps = { landing: WorkerDeps; signal: AbortSignal }

/** One round of a replay that nobody works on: a part of it, written down, so that any process can go on. */
export async function workOnReplays({ landing, signal }: ReplayWorkerDeps): Promise<{ more: boolean }> {
  const { db, clock, logger } = landing
  const claimed = await claimReplay(db, clock())
  if (!claimed) return { more: false }
  const { claims, cursor, ...job } = claimed
  if (job.stopping) {
    await end(landing, { ...job, claims, state: 'stopped' })
    return { more: true }
  }
  try {
    const filters = parseFilters(deliveryFiltersSchema, job.query)
    const until = AbortSignal.any([signal, AbortSignal.timeout(roundMs)])
    const round = await replayMany(landing, {
      filters,
      dryRun: false,
      cursor: cursor ?? undefined,
      limit: roundRows,
      signal: until,
    })
    const done = round.replayed + round.failed.length
    const isEnd = round.next_cursor === null && (done > 0 || !until.aborted)
    const progress = withRound(job, round)
    await keepProgress(landing, { ...progress, claims, cursor: done === 0 ? cursor : round.next_cursor })
    if (isEnd) await end(landing, { ...progress, claims, state: 'done' })
  } catch (error) {
    // It goes on when Postgres is back: its claim ends by itself.
    if (isOutage(error)) throw error
    logger.error({ err: error, replay_id: job.id }, 'a replay broke off')
    await end(landing, { ...job, claims, state: 'broken', problem: failureWords(error) })
  }
  return { more: !signal.aborted }
}

type Claimed = ReplayJob & { claims: number; cursor: string | null }

async function claimReplay(db: Database, now: Date): Promise<Claimed | undefined> {
  const at = sql`${now.toISOString()}::timestamptz`
  const rows = await db.execute<Row & RowOf<typeof onCall.replayJobs, 'claims' | 'cursor'>>(sql`
    update mediadock.replay_jobs set ${jobs.leased_until} = ${at} + make_interval(secs => ${leaseSeconds}), ${jobs.claims} = ${jobs.claims} + 1
    where ${jobs.id} = (
      select ${jobs.id} from mediadock.replay_jobs where ${jobs.state} = 'running' and ${jobs.leased_until} <= ${at}
      order by ${jobs.leased_until} limit 1 for update skip locked)
    returning ${list(jobs, ...shown, 'claims', 'cursor')}`)
  const [row] = rows
  if (!row) return undefined
  const { claims, cursor, ...rest } = row
  return { ...toJob(rest), claims, cursor }
}

function withRound(job: ReplayJob, { replayed, changes, failed }: ReplayedMany): ReplayJob {
  const small = changes.filter((change) => JSON.stringify(change).length <= maxShownBytes)
  return {
    ...job,
    replayed: job.replayed + replayed,
    changed: job.changed + changes.length,
    failed: job.failed + failed.length,
    changes: [...job.changes, ...small].slice(0, maxShown),
    failures: groupFailures(failed, job.failures).slice(0, maxFailureKinds),
  }
}

type Progress = ReplayJob & { claims: number; cursor: string | null }

/** Only the last claimant writes. */
async function keepProgress({ db, clock }: WorkerDeps, progress: Progress): Promise<void> {
  const { id, claims, cursor, replayed, changed, failed, changes, failures } = progress
  await db.execute(sql`
    update mediadock.replay_jobs set ${jobs.cursor} = ${cursor}, ${jobs.replayed} = ${replayed}::int, ${jobs.changed} = ${changed}::int, ${jobs.failed} = ${failed}::int,
      ${jobs.changes} = ${JSON.stringify(changes)}::jsonb, ${jobs.failures} = ${JSON.stringify(failures)}::jsonb, ${jobs.leased_until} = ${clock().toISOString()}::timestamptz
    where ${jobs.id} = ${id}::uuid and ${jobs.claims} = ${claims}::int and ${jobs.state} = 'running'`)
}

type Ended = ReplayJob & { claims: number }

/** Writes how it ended, there and in the audit; once, by whoever claimed it last. */
async function end({ db, clock, logger }: WorkerDeps, { id, claims, state, problem, ...job }: Ended): Promise<void> {
  const now = clock()
  const rows = await db.execute<RowOf<typeof onCall.replayJobs, 'id'>>(sql`
    update mediadock.replay_jobs set ${jobs.state} = ${state}, ${jobs.ended_at} = ${now.toISOString()}::timestamptz, ${jobs.problem} = ${problem ?? null}
    where ${jobs.id} = ${id}::uuid and ${jobs.claims} = ${claims}::int and ${jobs.state} = 'running' returning ${jobs.id}`)
  if (rows.length === 0) return
  const { actor, count, replayed, changed, failed, query } = job
  const detail = { count, replayed, changed, failed, end: state, ...(problem !== undefined && { error: problem }) }
  const target = new URLSearchParams(query).toString()
  const action = count === 1 ? 'replay' : 'replay_many'
  await writeAudit(db, { via: 'console', actor, action, target, detail, at: now }).catch((error: unknown) =>
    logger.error(
      { err: error, actor, action, target, detail },
      'an action was taken and could not be written to the audit',
    ),
  )
}
