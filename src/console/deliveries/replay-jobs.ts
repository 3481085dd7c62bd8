import { randomUUID } from 'node:crypto'
import { asHttpError } from '../../receiver/api/operation.ts'
import type { Change } from '../../receiver/landing/land.ts'
import { replayMany } from '../../receiver/on-call/replay-many.ts'
import type { ReceiverDeps } from '../../receiver/program.ts'
import type { DeliveryFilters } from '../../receiver/queries/filters.ts'
import { audited } from '../../receiver/upkeep/audit.ts'
import { HttpError } from '../../runtime/http/http.ts'

/** One replay of many, as far as it is: kept in memory, for the page that shows it. */
export type ReplayJob = {
  id: string
  /** The filters as the address has them. */
  query: Readonly<Record<string, string>>
  /** How many the filters chose when it began. */
  count: number
  state: 'running' | 'done' | 'stopped' | 'broken'
  startedAt: Date
  endedAt: Date | undefined
  replayed: number
  changed: number
  failed: number
  /** The first of them: a page shows no more. */
  changes: Change[]
  failures: { delivery_id: string; message: string }[]
  /** Why it broke off. */
  problem: string | undefined
}

export type ReplayJobs = {
  start: (wanted: { query: ReplayJob['query']; filters: DeliveryFilters; count: number; actor: string }) => ReplayJob
  find: (id: string) => ReplayJob | undefined
  stop: (id: string) => void
}

const maxRunning = 2
const maxKept = 50
const maxShown = 50
/** Of one change: so many jobs are kept, with so many changes each. */
const maxShownBytes = 32 * 1024
/** Deliveries between two looks of the page. */
const roundRows = 40

/** Replays on behalf of the console: in the background, so that no browser has to wait, and so that they can be stopped. */
export function createReplayJobs(deps: ReceiverDeps): ReplayJobs {
  const jobs = new Map<string, { job: ReplayJob; stop: AbortController }>()
  const isRunning = ({ job }: { job: ReplayJob }) => job.state === 'running'

  return {
    start: ({ query, filters, count, actor }) => {
      if ([...jobs.values()].filter(isRunning).length >= maxRunning) {
        throw new HttpError(503, 'too_many_waiting', `${maxRunning} replays are running already: wait for one to end, or stop it`, {
          headers: { 'retry-after': '10' },
        })
      }
      const job: ReplayJob = {
        id: randomUUID(),
        query,
        count,
        state: 'running',
        startedAt: deps.clock(),
        endedAt: undefined,
        replayed: 0,
        changed: 0,
        failed: 0,
        changes: [],
        failures: [],
        problem: undefined,
      }
      const stop = new AbortController()
      jobs.set(job.id, { job, stop })
      const [oldest] = [...jobs.values()].filter((kept) => !isRunning(kept))
      if (jobs.size > maxKept && oldest) jobs.delete(oldest.job.id)
      run(deps, job, { filters, actor, signal: AbortSignal.any([deps.signal, stop.signal]) }).catch((error: unknown) => {
        deps.logger.error({ err: error }, 'a replay of the console ended without saying how')
      })
      return job
    },
    find: (id) => jobs.get(id)?.job,
    stop: (id) => jobs.get(id)?.stop.abort(),
  }
}

type Run = { filters: DeliveryFilters; actor: string; signal: AbortSignal }

/** Never rejects: how it ended stands in the job, and in the audit. */
async function run(deps: ReceiverDeps, job: ReplayJob, { filters, actor, signal }: Run): Promise<void> {
  const action = {
    via: 'console',
    actor,
    action: job.count === 1 ? 'replay' : 'replay_many',
    target: new URLSearchParams(job.query).toString(),
  } as const
  const detailOf = () => ({ count: job.count, replayed: job.replayed, changed: job.changed, failed: job.failed, end: job.state })
  try {
    await audited(deps, { ...action, detailOf }, async () => {
      job.state = (await replayAll(deps, job, { filters, signal })) ? 'done' : 'stopped'
    })
  } catch (error) {
    const known = asHttpError(error, deps.logger)
    if (!(known instanceof HttpError)) deps.logger.error({ err: error }, 'a replay of the console broke off')
    job.problem = known instanceof HttpError ? known.message : 'something failed on our side; the log has the details'
    job.state = 'broken'
  }
  job.endedAt = deps.clock()
}

function keep({ changes }: ReplayJob, change: Change): void {
  if (changes.length < maxShown && JSON.stringify(change).length <= maxShownBytes) changes.push(change)
}

/** Answers whether it came to the end. */
async function replayAll({ landing }: ReceiverDeps, job: ReplayJob, { filters, signal }: Omit<Run, 'actor'>): Promise<boolean> {
  let cursor: string | undefined
  do {
    if (signal.aborted) return false
    const round = await replayMany(landing, { filters, dryRun: false, cursor, limit: roundRows, signal })
    job.replayed += round.replayed
    job.changed += round.changes.length
    job.failed += round.failed.length
    for (const change of round.changes) keep(job, change)
    job.failures.push(...round.failed.slice(0, maxShown - job.failures.length))
    cursor = round.next_cursor ?? undefined
  } while (cursor !== undefined)
  return !signal.aborted
}
