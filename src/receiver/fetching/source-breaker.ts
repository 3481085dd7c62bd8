import { sourceOf, type Keys } from '../domain/keys.ts'

/** Failures in a row after which the source counts as down. */
const failuresToOpen = 8
const pauseMs = 5000

export type SourceBreaker = ReturnType<typeof createSourceBreaker>

/**
 * Stops calls to a source that gives no usable answer, since each hanging call delays other polls for 10 s. While the
 * source is down, one call at a time tests it, about 5 s after the last failure. Each process decides on its own, since
 * one call too many does no harm.
 */
export function createSourceBreaker() {
  let failures = 0
  let pausedUntil = new Date(0)
  let probe: object | undefined
  return {
    /** Calls in a row that got no usable answer, such as a timeout or a 500. */
    failures: () => failures,
    /** Returns the right to one call, whose holder notes its end or drops it; undefined while calls pause. */
    enter: (now: Date) => {
      const isDown = failures >= failuresToOpen
      // Bounded, so that a clock that is set back does not prolong the pause.
      const leftMs = pausedUntil.getTime() - now.getTime()
      if (isDown && (probe !== undefined || (leftMs > 0 && leftMs <= pauseMs * 1.2))) return undefined
      const pass = {
        note: (reached: boolean, at: Date): void => {
          pass.drop()
          failures = reached ? 0 : failures + 1
          if (failures >= failuresToOpen) pausedUntil = new Date(at.getTime() + pauseMs * (0.8 + Math.random() * 0.4))
        },
        drop: (): void => {
          if (probe === pass) probe = undefined
        },
      }
      if (isDown) probe = pass
      return pass
    },
  }
}

/** Returns the breaker of each source, by its stored name. */
export function createSourceBreakers(keys: () => Keys) {
  const breakers = new Map<string | null, SourceBreaker>()
  return (sourceName: string | null): SourceBreaker => {
    const breaker = breakers.get(sourceName) ?? createSourceBreaker()
    // Only names of the settings are added, so the map stays small.
    if (sourceOf(keys(), sourceName)) breakers.set(sourceName, breaker)
    return breaker
  }
}
