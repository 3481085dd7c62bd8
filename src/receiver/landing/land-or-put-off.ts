import {
  databaseCodeOf,
  isAboutTheRow,
  metALock,
  postgresMessage,
  waitedToCommit,
} from '../../platform/postgres/errors.ts'
import { claimsOfRow } from '../../platform/postgres/lease.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import { environmentsOf } from '../domain/keys.ts'
import { loggedTraceId } from '../domain/trace.ts'
import type { Held, HeldDelivery, Returned } from './held.ts'
import { returnClaims, retryOrPark, type InboxClaim } from './inbox.ts'
import type { LandingDeps } from './landing-deps.ts'
import { landingLockWaitMs, landUntilFailure, lockedRequests, type LandingOutcome } from './two-statements.ts'

export type BatchDeps = LandingDeps & { held: Held }

/** Returns the pause for a row that another transaction locks. It does not count as a failure of the delivery. */
export function lockedPauseMs(claims: number): number {
  return jitteredPauseMs(claimsOfRow(claims), { baseMs: 1000, capMs: 15_000 }, Math.random)
}

/**
 * Lands a batch of one delivery per request. If Postgres refuses a row, the batch is halved until that row is alone.
 * Deliveries whose requests another transaction locks are put off. Throws if Postgres itself failed. Some deliveries may
 * have landed by then.
 */
export async function landBatch(
  deps: BatchDeps,
  batch: readonly HeldDelivery[],
  waitMs: number = landingLockWaitMs,
): Promise<void> {
  // A batch whose deadline has passed has released its deliveries, and another process may land them.
  if (batch[0]?.mode !== 'LANDING') return
  const started = performance.now()
  const at = { now: deps.time(), environments: environmentsOf(deps.keys()), waitMs }
  const landings = batch.map(({ landing }) => landing)
  const { outcomes, failure } = await landUntilFailure(deps.db, landings, at)
  const open: HeldDelivery[] = []
  for (const one of batch) {
    const outcome = outcomes.get(one.landing.requestId) ?? 'raced'
    // Outcomes that the short statement committed are final, also if a later statement failed.
    if (failure && outcome === 'raced') open.push(one)
    else noteOutcome(deps, one, outcome, started)
  }
  if (failure) await landRefused(deps, open, { ...failure, waitMs, started })
}

type Refused = { error: unknown; waitMs: number; started: number }

/** Lands the parts of a batch that Postgres refused, and puts off or parks a delivery that is refused alone. */
async function landRefused(
  deps: BatchDeps,
  batch: readonly HeldDelivery[],
  { error, waitMs, started }: Refused,
): Promise<void> {
  const [first] = batch
  const isAlone = batch.length === 1 && first !== undefined
  if (isAlone || !isAboutTheRow(error)) {
    const failure = databaseCodeOf(error) ?? 'failed'
    for (const one of batch) trace(deps, one, started, { outcome: 'failed', failure })
  }
  // The commit waited for other transactions that notify. Halves would wait for the same lock, so the whole batch waits
  // twice as long. Beyond 4 s, Postgres has failed.
  if (waitedToCommit(error) && waitMs < 4000) return landBatch(deps, batch, waitMs * 2)
  if (!isAboutTheRow(error)) throw error
  let nextWaitMs = waitMs
  if (metALock(error)) {
    // Each half waits half as long as the whole, so that both together wait as long; at least 10 ms,
    // which a landing may take.
    nextWaitMs = Math.max(10, Math.round(waitMs / 2))
    const locked = await lockedRequests(
      deps.db,
      batch.map(({ landing }) => landing.requestId),
    )
    const isLocked = ({ landing }: HeldDelivery) => locked.has(landing.requestId)
    if (locked.size > 0) {
      // The others come first, since they have already waited for the locked ones.
      const others = batch.filter((one) => !isLocked(one))
      await landBatch(deps, others, nextWaitMs)
      return waitForLock(deps, batch.filter(isLocked), lockOfRequest)
    }
    if (isAlone) return waitForLock(deps, batch, lockElsewhere)
  }
  if (isAlone) return fail(deps, first, error)
  const half = Math.ceil(batch.length / 2)
  await landBatch(deps, batch.slice(0, half), nextWaitMs)
  await landBatch(deps, batch.slice(half), nextWaitMs)
}

const lockOfRequest = 'an open transaction locks the row of its request'
/** The lock is on a delivery, on media or in a trigger, or has ended since. */
const lockElsewhere = 'a lock of another transaction prevented the landing'

/** Puts off deliveries that a lock of another transaction blocks. They are retried for as long as it lasts. */
async function waitForLock(deps: BatchDeps, locked: readonly HeldDelivery[], trouble: string): Promise<void> {
  const returned = locked.map((one) => ({ one, pauseMs: lockedPauseMs(one.claimed.claims) }))
  await returnHeld(deps, returned, trouble)
  for (const { claimed, landing } of locked) {
    deps.logger.warn(
      { delivery_id: claimed.deliveryId, request_id: landing.requestId, trouble },
      'a delivery waits for a lock of another transaction, landing it later',
    )
  }
}

/** Releases deliveries and returns their claims to the inbox. */
export async function returnHeld({ db, time, held }: BatchDeps, returned: readonly Returned[], trouble?: string) {
  // First, since this process may claim a delivery again as soon as it is in the inbox.
  for (const { one } of returned) held.release(one)
  const claims = returned.map(({ one, pauseMs }) => ({ ...one.claimed, pauseMs }))
  await returnClaims(db, claims, { now: time(), trouble })
}

async function fail(deps: BatchDeps, one: HeldDelivery, error: unknown): Promise<void> {
  const { claimed } = one
  deps.held.release(one)
  const reason = 'landing_failed' as const
  const failure = { claimed, reason, detail: postgresMessage(error).slice(0, 500), now: deps.time() }
  const end = await unlessRefused(deps, claimed, retryOrPark(deps.db, failure))
  deps.logger.error({ err: error, ...idsOf(deps, one), end }, 'a delivery could not be landed')
}

function noteOutcome(deps: LandingDeps, one: HeldDelivery, outcome: LandingOutcome, started: number): void {
  const { claimed, landing } = one
  // An ordinary landing is not logged: the line of the arrival is enough. Nor is a raced one: it is due again.
  const isOrdinary = outcome === 'landed' && claimed.claims === 1 && claimed.failures === 0
  if (!isOrdinary && outcome !== 'raced') {
    const { status, mediaComplete } = landing
    const result = { status, outcome, media: landing.media.length, media_complete: mediaComplete }
    deps.logger.info({ ...idsOf(deps, one), ...result }, 'delivery processed')
  }
  deps.onProcessed({ landing, outcome, receivedAt: claimed.receivedAt })
  trace(deps, one, started, { outcome })
}

function idsOf({ traces }: LandingDeps, { claimed, landing }: HeldDelivery) {
  return {
    delivery_id: claimed.deliveryId,
    webhook_id: claimed.webhookId,
    request_id: landing.requestId,
    trace_id: loggedTraceId(claimed, traces),
  }
}

/** `failure`: only the code, since Postgres's message may quote values. */
type TraceEnd = { outcome: LandingOutcome } | { outcome: 'failed'; failure: string }

function trace({ traces }: LandingDeps, { claimed, landing }: HeldDelivery, started: number, end: TraceEnd): void {
  const { requestId, status, media } = landing
  const ms = performance.now() - started
  traces?.landed(claimed, { requestId, webhookId: claimed.webhookId, status, media: media.length, ms, ...end })
}

/**
 * Waits for the write that ends a claim. If Postgres refuses that write too, the lease expires, so that the other
 * deliveries do not fail with this one.
 */
export async function unlessRefused<End>({ logger }: LandingDeps, claimed: InboxClaim, write: Promise<End>) {
  return write.catch((error: unknown) => {
    if (!isAboutTheRow(error)) throw error
    const message = 'a delivery could not be put off or parked, trying again after its lease ends'
    logger.error({ err: error, delivery_id: claimed.deliveryId }, message)
    return 'refused' as const
  })
}
