import { setTimeout as delay } from 'node:timers/promises'

/** Places for work of a role that is done side by side, and continues after the round that began it. */
export function createPlaces(count: number) {
  const underWay = new Set<Promise<void>>()
  return {
    free: () => count - underWay.size,
    begin: (work: Promise<void>, onError: (error: unknown) => void) => {
      const ended = work.catch(onError).finally(() => underWay.delete(ended))
      underWay.add(ended)
    },
    /** Waits until work has ended, but not longer than a second. */
    untilOneEnds: async () => {
      const waited = new AbortController()
      // The longest wait of a round for a free place, so that a round still ends where all work hangs.
      const timeout = delay(1000, undefined, { signal: waited.signal, ref: false }).catch(() => {})
      await Promise.race([...underWay, timeout])
      waited.abort()
    },
    /** Resolves when no work is under way. */
    settled: async () => void (await Promise.all(underWay)),
  }
}
