/** The right to one call. Its holder reports the end of the call once, or drops the right. */
export type Pass = {
  note: (reached: boolean, now: Date) => void
  /** Returns the right without a call. */
  drop: () => void
}

export type ProviderBreaker = {
  /** Returns a pass for a call; undefined while the provider rests. */
  enter: (now: Date) => Pass | undefined
  /** Calls in a row that got no answer. */
  failures: () => number
}

/** Failures in a row after which the provider counts as down. */
const failuresToOpen = 8
const pauseMs = 5000

/**
 * Stops calls to a provider that does not answer, since each hanging call takes a place for 10 s. While the provider is
 * down, one call at a time tests it, about 5 s after the last failure. Each process decides on its own, since one call
 * too many does no harm.
 */
export function createProviderBreaker(random: () => number = Math.random): ProviderBreaker {
  let failures = 0
  let closedUntil = new Date(0)
  let probe: Pass | undefined
  const pass = (): Pass => {
    const own: Pass = {
      note: (reached, now) => {
        if (probe === own) probe = undefined
        failures = reached ? 0 : failures + 1
        if (failures >= failuresToOpen) closedUntil = new Date(now.getTime() + pauseMs * (0.8 + random() * 0.4))
      },
      drop: () => {
        if (probe === own) probe = undefined
      },
    }
    return own
  }
  return {
    failures: () => failures,
    enter: (now) => {
      if (failures < failuresToOpen) return pass()
      if (probe) return undefined
      // Bounded, so that a clock that is set back does not prolong the pause.
      const leftMs = closedUntil.getTime() - now.getTime()
      if (leftMs > 0 && leftMs <= pauseMs * 1.2) return undefined
      probe = pass()
      return probe
    },
  }
}
