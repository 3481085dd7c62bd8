export type ProviderBreaker = {
  /** When to come back, or undefined when the provider may be called now. */
  restsUntil: (now: Date) => Date | undefined
  note: (reached: boolean, now: Date) => void
}

/** Failures in a row after which the provider counts as down. */
const failuresToOpen = 8
/** Longer than a call can take: the next probe starts after the last one has ended. */
const pauseMs = 15_000

/**
 * Keeps a provider that does not answer from holding up what can land without
 * it: each call that hangs costs a place in the lane for 10 s. While it is down
 * one call in 15 s finds out whether it is back. One process's own view, which
 * is all it needs to be: nothing is lost by one call too many.
 */
export function createProviderBreaker(): ProviderBreaker {
  let failures = 0
  let closedUntil = new Date(0)
  const rest = (now: Date) => {
    closedUntil = new Date(now.getTime() + pauseMs)
  }
  return {
    restsUntil: (now) => {
      if (failures < failuresToOpen) return undefined
      // A clock that was put back must not make the pause longer than it is.
      if (now < closedUntil && closedUntil.getTime() - now.getTime() <= pauseMs) return closedUntil
      rest(now)
      return undefined
    },
    note: (reached, now) => {
      failures = reached ? 0 : failures + 1
      if (failures >= failuresToOpen) rest(now)
    },
  }
}
