import type { Logger } from '../../platform/logger.ts'
import { isAboutTheRow } from '../../platform/postgres/errors.ts'

/** Requests that Postgres refuses to claim: claims leave them out for a while, so that all others are polled. */
export type SetAside = {
  ids: () => readonly string[]
  add: (requestId: string, error: unknown) => void
}

/** A corrected trigger or constraint is noticed after this time. */
const restMs = 300_000

/** Creates the list in memory, since a row that Postgres refuses to write cannot be marked there. */
export function createSetAside({ clock, logger }: { clock: () => Date; logger: Logger }): SetAside {
  const refused = createRests(clock, restMs)
  return {
    ids: () => [...refused.present()],
    add: (requestId, error) => {
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

type Claiming<Due> = {
  claimBut: (aside: readonly string[]) => Promise<Due[]>
  /** Returns the ids that `claimBut` would claim, without claiming them. */
  idsBut: (aside: readonly string[]) => Promise<string[]>
  claimOne: (id: string) => Promise<Due[]>
}

/**
 * Claims everything except the requests set aside. If Postgres refuses that because of one row, claims one by one and
 * sets aside the refused ones.
 */
export async function claimedApart<Due>(
  setAside: SetAside | undefined,
  { claimBut, idsBut, claimOne }: Claiming<Due>,
): Promise<Due[]> {
  for (let refused = 0; ; refused += 1) {
    const aside = setAside?.ids() ?? []
    try {
      return await claimBut(aside)
    } catch (error) {
      // The limit of consecutive claims that meet only refused rows.
      if (!isAboutTheRow(error) || setAside === undefined || refused === 8) throw error
    }
    const claimed: Due[] = []
    for (const id of await idsBut(aside)) {
      try {
        claimed.push(...(await claimOne(id)))
      } catch (error) {
        if (!isAboutTheRow(error)) throw error
        setAside.add(id, error)
      }
    }
    if (claimed.length > 0) return claimed
  }
}
