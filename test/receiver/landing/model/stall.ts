import type { Fetcher } from '../../../../src/receiver/fetching/fetcher.ts'

export type Stalled = { letGo: () => Promise<void> }

/**
 * Starts a round whose fetches come back and then stall, and answers once it
 * stalls there, or has ended because there was nothing to fetch.
 */
export async function stall(fetch: Fetcher, start: (stalling: Fetcher) => Promise<unknown>): Promise<Stalled> {
  const released = Promise.withResolvers<void>()
  const stalled = Promise.withResolvers<void>()
  let asking = 0
  const stalling: Fetcher = async (ask) => {
    asking += 1
    try {
      return await fetch(ask)
    } finally {
      asking -= 1
      // All of a round ask at the same moment, so the last answer is the last.
      if (asking === 0) stalled.resolve()
      await released.promise
    }
  }
  const round = start(stalling)
  await Promise.race([stalled.promise, round])
  return {
    letGo: async () => {
      released.resolve()
      await round
    },
  }
}
