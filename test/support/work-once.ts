import type { Handover } from '../../src/receiver/intake/accept.ts'
import type { Lane } from '../../src/receiver/landing/inbox.ts'
import { createLander, type Lander } from '../../src/receiver/landing/lander.ts'
import type { Landed, WorkerDeps } from '../../src/receiver/landing/worker.ts'

/** Nobody lands in this process: all that is stored waits for whoever claims it. */
export const nobody: Handover = {
  reserve: () => false,
  claimedUntil: () => new Date(),
  take: () => {},
  release: () => {},
}

/** Longer than any test. */
const patientMs = 600_000

export type Round = Landed & { claimed: number; parked: number }

/** A lander that no loop drives, and that waits for the provider's answers as long as they take. */
export function testLander(
  deps: WorkerDeps,
  { patienceMs = patientMs, onBatch }: { patienceMs?: number; onBatch?: (came: Landed | Error) => void } = {},
): Lander {
  const signal = new AbortController().signal
  return createLander({
    ...deps,
    rest: async () => {},
    wake: () => {},
    signal,
    patienceMs,
    ...(onBatch && { onBatch }),
  })
}

/** Waits for all that a lander holds, answers of the provider included. */
export async function allLanded(lander: Lander): Promise<void> {
  await lander.idle()
  await lander.allAnswered()
  await lander.idle()
}

/** One round of claiming and all that comes of it. */
export async function workOnce(deps: WorkerDeps, lane: Lane): Promise<Round> {
  const sum = { landed: 0, failed: 0, deferred: 0 }
  const errors: Error[] = []
  const onBatch = (came: Landed | Error) => {
    if (came instanceof Error) return void errors.push(came)
    sum.landed += came.landed
    sum.failed += came.failed
    sum.deferred += came.deferred
  }
  const lander = testLander(deps, { onBatch })
  const { claimed, parked } = await lander.claimSome(lane)
  await allLanded(lander)
  if (errors[0]) throw errors[0]
  return { claimed, parked, ...sum }
}
