import type { Logger } from '../../platform/logger.ts'

export type SetAside = ReturnType<typeof createSetAside>

/** A corrected trigger or constraint is noticed after this time. */
const restMs = 300_000

/**
 * Keeps the requests that Postgres refuses to claim: claims leave them out for a while, so that all others are polled.
 * In memory, since a row that Postgres refuses to write cannot be marked there.
 */
export function createSetAside({ clock, logger }: { clock: () => Date; logger: Logger }) {
  const refused = createRests(clock, restMs)
  return {
    ids: () => [...refused.present()],
    add: (requestId: string, error: unknown) => {
      if (refused.present().size < 10_000) refused.add(requestId)
      logger.error(
        { err: error, request_id: requestId },
        'Postgres refuses to claim a request for polling: it is left out for 5 minutes',
      )
    },
  }
}

/** Keeps names that rest for `ms` each. */
export function createRests(clock: () => Date, ms: number) {
  const untilMs = new Map<string, number>()
  return {
    present: () => {
      const now = clock().getTime()
      // Bounded, so that a clock that is set back does not prolong a rest.
      for (const [name, until] of untilMs) if (until <= now || until - now > ms) untilMs.delete(name)
      return new Set(untilMs.keys())
    },
    add: (name: string) => void untilMs.set(name, clock().getTime() + ms),
  }
}
