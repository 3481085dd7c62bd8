import { faultOf } from '../../platform/postgres/errors.ts'
import { pollEndings, type PollEnding, type RunCounter } from '../domain/poll-endings.ts'
import { createRestingQueues, type RestingQueues } from './due.ts'
import { claimDue, claimOne, claimForRun } from './poll-claims.ts'
import { beginPolls, poll, type PollingDeps } from './polling.ts'

/** The number of the requests of a run, and of its polls by their endings. */
export type ReconcileRun = Record<'scanned' | RunCounter, number>

const claimRows = 16

/**
 * One run: polls everything that is due or overdue, as far as the keys' budgets allow. The state in Postgres decides,
 * so a missed tick loses nothing, and any number of replicas share the work.
 */
export async function runOnce(deps: PollingDeps, signal?: AbortSignal): Promise<ReconcileRun> {
  const run = newRun()
  // Poll queues without calls wait for the next run; others continue.
  const resting = createRestingQueues(deps, Infinity)
  // The limit of one run. The next tick continues.
  while (run.scanned < 2000 && !signal?.aborted) {
    const polls = await pollSome(deps, resting)
    if (polls.length === 0) break
    run.scanned += polls.length
    for (const polled of polls) {
      if (polled.status === 'fulfilled') {
        count(run, polled.value)
        continue
      }
      if (faultOf(polled.reason) === 'server') throw polled.reason
      // The failure concerns only this request.
      run.failed += 1
      deps.logger.error(
        { err: polled.reason },
        'the ending of a poll could not be written, the request is polled again after its lease ends',
      )
    }
  }
  return run
}

/**
 * Polls some requests. Those that were never polled may be unknown to the provider, so those that it knows get their
 * calls first. A claim is renewed until its poll ends, so the first polls begin before others are claimed: that may
 * fail.
 */
async function pollSome(deps: PollingDeps, resting: RestingQueues): Promise<PromiseSettledResult<PollEnding>[]> {
  const begin = async (claim: typeof claimDue) => {
    const due = await claim(deps, { limit: claimRows, ...resting.queues() })
    return beginPolls(deps, due, resting)
  }
  const known = Promise.allSettled(await begin(claimDue))
  try {
    const others = await Promise.allSettled(await begin(claimForRun))
    return [...(await known), ...others]
  } finally {
    await known
  }
}

/** Polls one request now, regardless of its schedule. Undefined if it is not tracked or its row stays locked. */
export async function reconcileOne(deps: PollingDeps, requestId: string): Promise<PollEnding | undefined> {
  const one = await claimOne(deps, requestId)
  // An operator's poll may take any call, also for an unknown request.
  return one && poll(deps, { ...one, is_unknown: false })
}

/** Returns the counts of a run that made one poll. */
export function runOf(ending: PollEnding): ReconcileRun {
  const run = { ...newRun(), scanned: 1 }
  count(run, ending)
  return run
}

export function newRun(): ReconcileRun {
  return { scanned: 0, landed: 0, running: 0, notFound: 0, failed: 0, postponed: 0, rateLimited: 0 }
}

function count(run: ReconcileRun, ending: PollEnding): void {
  for (const counter of pollEndings[ending].counters) run[counter] += 1
}
