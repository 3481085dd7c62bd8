/** A set that keeps each name for `ms`. */
export function createTimedSet(clock: () => Date, ms: number) {
  const untilMs = new Map<string, number>()
  return {
    /** The names that are in the set now. */
    present: (): ReadonlySet<string> => {
      const now = clock().getTime()
      // Bounded, so that a clock that is set back keeps no name longer.
      for (const [name, until] of untilMs) if (until <= now || until - now > ms) untilMs.delete(name)
      return new Set(untilMs.keys())
    },
    add: (name: string) => void untilMs.set(name, clock().getTime() + ms),
  }
}
