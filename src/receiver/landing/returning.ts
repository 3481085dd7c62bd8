import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from '../../platform/logger.ts'
import { isConnectionLost } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import { giveBack } from './inbox.ts'
import { lockedPause, type HeldDelivery } from './worker.ts'

/** After Postgres failed. */
export const failurePause = { baseMs: 250, capMs: 5000 }
const giveBackTries = 3

type ReturningDeps = { db: Database; clock: () => Date; logger: Logger; signal: AbortSignal }

/** Why the batch came to nothing, and whether the delivery was alone in it. */
type Failed = { error: unknown; isAlone: boolean }

/**
 * Gives back what could not be landed: as soon as Postgres is back, nobody has to wait for our
 * leases. One that fails alone, and not with its connection, may be the only one that does: it
 * comes later, so that others do not fail with it again at once.
 */
export async function returnClaims(
  { db, clock, logger, signal }: ReturningDeps,
  claims: readonly HeldDelivery[],
  { error, isAlone }: Failed,
): Promise<void> {
  const trouble = signal.aborted ? undefined : failureWords(error)
  const comesLater = isAlone && !signal.aborted && !isConnectionLost(error)
  const dueAt = (claim: HeldDelivery) =>
    new Date(clock().getTime() + jitteredPauseMs(claim.claims, lockedPause, Math.random))
  const returned = comesLater ? claims.map((claim) => ({ ...claim, dueAt: dueAt(claim) })) : claims
  for (let tries = 1; tries <= giveBackTries; tries += 1) {
    try {
      return await giveBack(db, returned, { now: clock(), ...(trouble !== undefined && { trouble }) })
    } catch (failure) {
      logger.warn(
        { err: failure, deliveries: claims.length, tries },
        'claimed deliveries could not be given back, their leases end by themselves',
      )
      if (signal.aborted) return
      await delay(jitteredPauseMs(tries, failurePause, Math.random), undefined, { signal }).catch(() => {})
    }
  }
}
