import type { MemoryRoom } from '../../src/receiver/domain/delivery.ts'
import { createHandOver, type HandOver } from '../../src/receiver/landing/hand-over.ts'
import type { BatchEnd, WorkerDeps } from '../../src/receiver/landing/land-or-put-off.ts'

/** No room in this process: each delivery is stored without a claim. */
export const noRoom: MemoryRoom = { leaseSeconds: 0, reserve: () => false, take: () => {}, release: () => {} }

export type Round = Omit<BatchEnd, 'settled'> & { landed: number; claimed: number; parked: number }

/** A hand-over that no loop drives. Its leases go by the clock of the test. */
export function testHandOver(
  deps: WorkerDeps,
  { onBatch }: { onBatch?: (result: BatchEnd | Error) => void } = {},
): HandOver {
  return createHandOver({
    ...deps,
    rest: async () => {},
    wake: () => {},
    signal: new AbortController().signal,
    nowMs: () => deps.clock().getTime(),
    ...(onBatch && { onBatch }),
  })
}

/** One round of claiming and all that comes of it. */
export async function workOnce(deps: WorkerDeps): Promise<Round> {
  const sum = { landed: 0, failed: 0 }
  const errors: Error[] = []
  const onBatch = (result: BatchEnd | Error) => {
    if (result instanceof Error) return void errors.push(result)
    sum.landed += result.settled
    sum.failed += result.failed
  }
  const handOver = testHandOver(deps, { onBatch })
  const { claimed, parked } = await handOver.claimSome()
  await handOver.idle()
  if (errors[0]) throw errors[0]
  return { claimed, parked, ...sum }
}
