import { createParallelWork } from '../../platform/parallel-work.ts'
import { environments, type Environment } from '../domain/schema.ts'
import { type JobDeps, runJob } from './job.ts'
import { claimRequests } from './requests.ts'

type WorkerDeps = JobDeps & {
  /** Concurrent requests in this process. Sandbox requests only wait, so they have separate slots. */
  slots: Record<Environment, number>
  /** Called when a slot has become free. */
  onFree: () => void
}

/** Runs the queue (spec, States). Any number of processes can share it. */
export function createQueueWorker(deps: WorkerDeps, cut: AbortSignal) {
  const { slots, onFree } = deps
  const running = { live: createParallelWork(slots.live, onFree), sandbox: createParallelWork(slots.sandbox, onFree) }
  const restsUntilMs = { live: 0, sandbox: 0 }

  const fill = async (environment: Environment): Promise<void> => {
    const limit = running[environment].free()
    if (limit <= 0 || performance.now() < restsUntilMs[environment]) return
    // Pause before the next check of an empty queue, which other processes fill too. Shorter than the loop's pause.
    restsUntilMs[environment] = performance.now() + 300
    const { leaseSeconds, time } = deps
    const claimed = await claimRequests(deps.db, { environment, limit, leaseSeconds, now: time() })
    if (claimed.length === limit) restsUntilMs[environment] = 0
    for (const request of claimed) {
      const message = 'the end of a generation was not recorded, its lease will end'
      running[environment].begin(runJob(deps, request, cut), (error) =>
        deps.logger.error({ err: error, request_id: request.id }, message),
      )
    }
  }
  return {
    /** Notes a new request in this queue, so that the next round checks the queue. */
    note: (environment: Environment) => {
      restsUntilMs[environment] = 0
    },
    /** Fills the free slots without waiting for their jobs. */
    runOnce: async () => {
      for (const environment of environments) await fill(environment)
      return { more: false }
    },
    /** Resolves when no job is running. */
    drain: async () => void (await Promise.all([running.live.idle(), running.sandbox.idle()])),
  }
}
