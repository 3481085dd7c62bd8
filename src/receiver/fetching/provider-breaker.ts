/** The right to one call; whoever has it tells once how the call went. */
export type Pass = {
  note: (reached: boolean, now: Date) => void
  /** No call was made. */
  drop: () => void
}

export type ProviderBreaker = {
  /** A call may be made now, or when to come back. */
  enter: (now: Date) => Pass | { restsUntil: Date }
  /** Calls in a row that got no answer. */
  failures: () => number
}

/** Failures in a row after which the provider counts as down. */
const failuresToOpen = 8
const pauseMs = 5000
/** While one call finds out whether the provider is back, the others look this often whether it has. */
const lookMs = 1000

/**
 * Keeps a provider that does not answer from holding up what can land without
 * it: each call that hangs costs a place for 10 s. While it is down
 * one call at a time finds out whether it is back, about 5 s after the last one
 * has failed. One process's own view, which is all it needs to be: nothing is
 * lost by one call too many.
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
      if (probe) return { restsUntil: new Date(now.getTime() + lookMs) }
      // A clock that was put back must not make the pause longer than it is.
      const leftMs = closedUntil.getTime() - now.getTime()
      if (leftMs > 0 && leftMs <= pauseMs * 1.2) return { restsUntil: closedUntil }
      probe = pass()
      return probe
    },
  }
}
