import { faultOf } from '../../platform/postgres/errors.ts'
import { claimDue, claimOne, claimForRun, createResting } from './poll-claims.ts'
import { beginPolls, poll, type PollEnd, type PollingDeps } from './polling.ts'

/** The polls of a run, by their ends. `landed`: the result was new to readers. */
export type ReconcileRun = {
  scanned: number
  landed: number
  running: number
  notFound: number
  failed: number
  postponed: number
  rateLimited: number
}

const claimRows = 16

/**
 * One run: polls everything that is due or overdue, as far as the keys' budgets allow. The state in Postgres decides,
 * so a missed tick loses nothing, and any number of replicas share the work.
 */
export async function runOnce(deps: PollingDeps, signal?: AbortSignal): Promise<ReconcileRun> {
  const run = newRun()
  // Poll queues without calls wait for the next run; others continue.
  const resting = createResting(deps, Infinity)
  // The limit of one run. The next tick continues.
  while (run.scanned < 2000 && !signal?.aborted) {
    const wanted = { limit: claimRows, ...resting.queues() }
    // Requests that were never polled may be unknown to the provider, so those that it knows get their calls first.
    const due = [...(await claimDue(deps, wanted)), ...(await claimForRun(deps, wanted))]
    if (due.length === 0) break
    run.scanned += due.length
    const ends = await Promise.allSettled(await beginPolls(deps, due, resting))
    for (const ended of ends) {
      if (ended.status === 'fulfilled') {
        count(run, ended.value)
        continue
      }
      if (faultOf(ended.reason) === 'server') throw ended.reason
      // The failure concerns only this request.
      run.failed += 1
      deps.logger.error(
        { err: ended.reason },
        'the outcome of a poll could not be written, the request is polled again after its lease ends',
      )
    }
  }
  return run
}

/** Polls one request now, regardless of its schedule. Undefined if it is not tracked or its row stays locked. */
export async function reconcileOne(deps: PollingDeps, requestId: string): Promise<ReconcileRun | undefined> {
  const one = await claimOne(deps, requestId)
  if (!one) return undefined
  const run = { ...newRun(), scanned: 1 }
  // An operator's poll may take any call, also for an unknown request.
  count(run, await poll(deps, { ...one, is_unknown: false }))
  return run
}

export function newRun(): ReconcileRun {
  return { scanned: 0, landed: 0, running: 0, notFound: 0, failed: 0, postponed: 0, rateLimited: 0 }
}

/** The counts of a run that each end of a poll adds to. */
const countedAs: Record<PollEnd, readonly Exclude<keyof ReconcileRun, 'scanned'>[]> = {
  landed: ['landed'],
  result: [],
  running: ['running'],
  not_found: ['notFound'],
  unreachable: ['failed'],
  invalid: ['failed'],
  landing_failed: ['failed'],
  not_found_yet: ['postponed'],
  no_call: ['postponed'],
  unauthorized: ['postponed'],
  rate_limited: ['postponed', 'rateLimited'],
}

function count(run: ReconcileRun, end: PollEnd): void {
  for (const name of countedAs[end]) run[name] += 1
}
