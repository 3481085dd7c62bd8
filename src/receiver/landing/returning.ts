import { withDeadline } from '../../platform/deadline.ts'
import { faultOf, isConnectionLost } from '../../platform/postgres/errors.ts'
import { claimsOfRow } from '../../platform/postgres/lease.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import type { Claimed } from './claimed.ts'
import type { DeliveryInFlight, InFlight, LaneName, Returned } from './in-flight.ts'
import { putOffOrPark, returnClaims, type InboxClaim } from './inbox.ts'
import type { LandingDeps } from './landing-deps.ts'

/* Returns deliveries that cannot land now to the inbox. A return does not count as a failure of a delivery. */

export type BatchDeps = LandingDeps & {
  inFlight: InFlight
  /** Aborts when the process stops. Waiting deliveries still land, and are returned only after a batch has failed. */
  signal: AbortSignal
}

/** Far beyond any landing. A statement that is lost with its connection must not block a lane forever. */
export const landingDeadlineMs = 30_000

/**
 * Returns the pause of a delivery that is returned without a failure of its own: 1 s, 4 s, then 15 s, each less up to
 * half. The pause quadruples, since each round adds two to `claims`: one for the claim, one for its return.
 */
export function returnPauseMs(claims: number): number {
  return jitteredPauseMs(claimsOfRow(claims), { baseMs: 1000, capMs: 15_000 }, Math.random)
}

/** Releases deliveries and returns their claims to the inbox. */
export async function returnToInbox(
  { db, time, inFlight }: BatchDeps,
  returned: readonly Returned[],
  trouble?: string,
) {
  // First, since this process may claim a delivery again as soon as it is in the inbox. A flood is released already.
  for (const { one } of returned) inFlight.release(one)
  const claims = returned.map(({ one, pauseMs }) => ({ ...one.claimed, pauseMs }))
  await returnClaims(db, claims, { now: time(), trouble })
}

/** Returns deliveries to the inbox. If that fails or takes too long, their leases expire. */
export async function returnOrExpire(deps: BatchDeps, returned: readonly Returned[], trouble?: string): Promise<void> {
  await withDeadline(returnToInbox(deps, returned, trouble), landingDeadlineMs, 'returning deliveries').catch(
    (error: unknown) =>
      deps.logger.warn(
        { err: error, deliveries: returned.length },
        'claimed deliveries could not be returned to the inbox, their leases will expire',
      ),
  )
}

/** Returns deliveries of one request to the inbox, with later times. */
export async function returnFlood(deps: BatchDeps, flood: readonly Returned[]): Promise<void> {
  deps.logger.info({ deliveries: flood.length }, 'spreading many deliveries of one request over later seconds')
  await returnOrExpire(deps, flood)
}

/** Returns a batch that failed as a whole to the inbox. */
export async function returnFailed(
  deps: BatchDeps,
  lane: LaneName,
  batch: readonly DeliveryInFlight[],
  error: unknown,
): Promise<void> {
  const { inFlight, signal } = deps
  // These are still in flight. The other deliveries of the batch have landed, or were put off or parked.
  const left = batch.filter(({ mode }) => mode === 'LANDING')
  // A stopping process retries nothing, so everything that waits is returned.
  const unwritten = signal.aborted ? inFlight.readyIn(lane) : []
  // A delivery that fails alone, but not with its connection, gets a later time, so that others do not fail with it.
  const comesLater = batch.length === 1 && !signal.aborted && !isConnectionLost(error)
  const pauseMs = comesLater ? returnPauseMs(batch[0]?.claimed.claims ?? 1) : 0
  const returned = [...left, ...unwritten].map((one) => ({ one, pauseMs }))
  await returnOrExpire(deps, returned, signal.aborted ? undefined : failureWords(error))
}

/**
 * Waits for the write that ends a claim. If Postgres refuses that write too, the lease expires, so that the other
 * deliveries do not fail with this one.
 */
export async function writeOrExpire<End>({ logger }: LandingDeps, claimed: InboxClaim, write: Promise<End>) {
  return write.catch((error: unknown) => {
    if (faultOf(error) === 'server') throw error
    const message = 'a delivery could not be put off or parked, trying again after its lease expires'
    logger.error({ err: error, delivery_id: claimed.deliveryId }, message)
    return 'refused' as const
  })
}

/** Puts a delivery off after a failure of its own. The fifth parks it. */
export function failDelivery(deps: LandingDeps, claimed: Claimed, detail: string) {
  const failed = { claimed, detail: detail.slice(0, 500), now: deps.time() }
  return writeOrExpire(deps, claimed, putOffOrPark(deps.db, failed))
}
