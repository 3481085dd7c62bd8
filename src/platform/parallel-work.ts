import { setTimeout as delay } from 'node:timers/promises'

/** Limits a role's parallel work, which may continue after the round that began it. `onEnd` is called after each. */
export function createParallelWork(limit: number, onEnd = () => {}) {
  const underWay = new Set<Promise<unknown>>()
  return {
    /** How much more may begin now. */
    free: () => limit - underWay.size,
    begin: (work: Promise<unknown>, onError: (error: unknown) => void) => {
      const ended = work.catch(onError).finally(() => {
        underWay.delete(ended)
        onEnd()
      })
      underWay.add(ended)
    },
    /** Waits until one piece of work has ended, at most a second. */
    untilOneEnds: async () => {
      const waited = new AbortController()
      // A round must end even if all work hangs.
      const timeout = delay(1000, undefined, { signal: waited.signal, ref: false }).catch(() => {})
      await Promise.race([...underWay, timeout])
      waited.abort()
    },
    /** Resolves when no work is under way. */
    idle: async () => void (await Promise.all(underWay)),
  }
}
