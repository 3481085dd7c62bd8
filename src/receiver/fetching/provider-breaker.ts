/** The right to one call. Its holder notes the end of the call once, or drops it. */
export type Pass = {
  note: (reached: boolean, now: Date) => void
  /** No call was made. */
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
 * Keeps a provider that does not answer from holding up polls: each call that hangs costs a place for 10 s. While it is
 * down, one call at a time finds out whether it is back, about 5 s after the last one failed. Each process decides for
 * itself, since one call too many does no harm.
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
      // A clock that was set back makes no pause longer.
      const leftMs = closedUntil.getTime() - now.getTime()
      if (leftMs > 0 && leftMs <= pauseMs * 1.2) return undefined
      probe = pass()
      return probe
    },
  }
}
