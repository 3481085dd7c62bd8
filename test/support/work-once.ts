import type { Handover } from '../../src/receiver/intake/accept.ts'
import { createLander, type Lander } from '../../src/receiver/landing/lander.ts'
import type { Landed, WorkerDeps } from '../../src/receiver/landing/worker.ts'

/** Nobody lands in this process: all that is stored waits for whoever claims it. */
export const nobody: Handover = {
  reserve: () => false,
  claimedUntil: () => new Date(),
  take: () => {},
  release: () => {},
}

export type Round = Landed & { claimed: number; parked: number }

/** A lander that no loop drives. */
export function testLander(deps: WorkerDeps, { onBatch }: { onBatch?: (came: Landed | Error) => void } = {}): Lander {
  const signal = new AbortController().signal
  return createLander({
    ...deps,
    rest: async () => {},
    wake: () => {},
    signal,
    ...(onBatch && { onBatch }),
  })
}

/** One round of claiming and all that comes of it. */
export async function workOnce(deps: WorkerDeps): Promise<Round> {
  const sum = { landed: 0, failed: 0, deferred: 0 }
  const errors: Error[] = []
  const onBatch = (came: Landed | Error) => {
    if (came instanceof Error) return void errors.push(came)
    sum.landed += came.landed
    sum.failed += came.failed
    sum.deferred += came.deferred
  }
  const lander = testLander(deps, { onBatch })
  const { claimed, parked } = await lander.claimSome()
  await lander.idle()
  if (errors[0]) throw errors[0]
  return { claimed, parked, ...sum }
}
