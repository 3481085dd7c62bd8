import type { Logger } from '../../platform/logger.ts'
import { createTimedSet } from '../../platform/timed-set.ts'

export type SetAside = ReturnType<typeof createSetAside>

/** A corrected trigger or constraint is noticed after this time. */
const keptMs = 300_000

/**
 * Keeps the requests that Postgres refuses to claim: claims leave them out for a while, so that all others are polled.
 * In memory, since a row that Postgres refuses to write cannot be marked there.
 */
export function createSetAside({ clock, logger }: { clock: () => Date; logger: Logger }) {
  const refused = createTimedSet(clock, keptMs)
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
