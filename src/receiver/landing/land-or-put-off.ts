import type { Logger } from '../../platform/logger.ts'
import {
  databaseCodeOf,
  isAboutTheRow,
  metALock,
  postgresMessage,
  waitedToCommit,
} from '../../platform/postgres/errors.ts'
import { claimsOfRow } from '../../platform/postgres/lease.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import { environmentsOf } from '../domain/keys.ts'
import type { RequestIds } from '../domain/request-id.ts'
import { loggedTraceId, type DeliveryTraces } from '../domain/trace.ts'
import { returnClaims, retryOrPark, type Claimed, type InboxClaim } from './inbox.ts'
import type { Landing, RowSettings } from './row-to-write.ts'
import { landingLockWaitMs, landSettling, lockedRequests, type LandingOutcome } from './two-statements.ts'

/** The dependencies of landing, shared by the inbox, the reconciler, replays and slices. */
export type LandingDeps = RowSettings & {
  db: Database
  clock: () => Date
  /** The time that replicas share. */
  time: SharedTime
  logger: Logger
  onProcessed: (processed: { landing: Landing; outcome: LandingOutcome; receivedAt: Date | undefined }) => void
  /** Ends the submit that the URL of a webhook names. */
  join?: ((joining: RequestIds & { idempotencyKey: string; sourceName: string | null }) => Promise<void>) | undefined
  /** Called when a poll is due because of a hint. */
  onHint?: ((keyName: string) => void) | undefined
  traces?: DeliveryTraces | undefined
}

/** A claimed delivery with the row to write for it. */
export type Ready = { claimed: Claimed; landing: Landing }

export type BatchDeps = LandingDeps & {
  /** Called before a delivery is given another time or is parked: this process no longer holds it. */
  onReturned: (deliveryId: string) => void
  /** Stops the batch between two statements. */
  cut: AbortSignal
}

/** Returns the pause for a row that another transaction locks. It does not count as a failure of the delivery. */
export function lockedPauseMs(claims: number): number {
  return jitteredPauseMs(claimsOfRow(claims), { baseMs: 1000, capMs: 15_000 }, Math.random)
}

/**
 * Lands a batch with landSettling(), with one delivery per request. If Postgres refuses it for a row, deliveries whose
 * requests are locked are put off, and the others are halved until the refused row is alone. Throws if Postgres itself
 * failed: some of the batch may have landed then.
 */
export async function landBatch(
  deps: BatchDeps,
  batch: readonly Ready[],
  waitMs: number = landingLockWaitMs,
): Promise<void> {
  if (batch.length === 0) return
  deps.cut.throwIfAborted()
  const started = performance.now()
  const at = { now: deps.time(), environments: environmentsOf(deps.keys()), waitMs }
  const landings = batch.map(({ landing }) => landing)
  const { outcomes, failure } = await landSettling(deps.db, landings, at)
  const open: Ready[] = []
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
  batch: readonly Ready[],
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
    const isLocked = ({ landing }: Ready) => locked.has(landing.requestId)
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

/** Gives back deliveries that a lock of another transaction blocks. They are retried for as long as it lasts. */
async function waitForLock(
  { db, time, logger, onReturned }: BatchDeps,
  locked: readonly Ready[],
  trouble: string,
): Promise<void> {
  const returned = locked.map(({ claimed }) => ({ ...claimed, pauseMs: lockedPauseMs(claimed.claims) }))
  for (const { deliveryId } of returned) onReturned(deliveryId)
  await returnClaims(db, returned, { now: time(), trouble })
  for (const { claimed, landing } of locked) {
    logger.warn(
      { delivery_id: claimed.deliveryId, request_id: landing.requestId, trouble },
      'a delivery waits for a lock of another transaction, landing it later',
    )
  }
}

async function fail(deps: BatchDeps, ready: Ready, error: unknown): Promise<void> {
  const { claimed } = ready
  deps.onReturned(claimed.deliveryId)
  const reason = 'landing_failed' as const
  const failure = { claimed, reason, detail: postgresMessage(error).slice(0, 500), now: deps.time() }
  const end = await unlessRefused(deps, claimed, retryOrPark(deps.db, failure))
  deps.logger.error({ err: error, ...idsOf(deps, ready), end }, 'a delivery could not be landed')
}

function noteOutcome(deps: LandingDeps, ready: Ready, outcome: LandingOutcome, started: number): void {
  const { claimed, landing } = ready
  // An ordinary landing is not logged: the line of the arrival is enough. Nor is a raced one: it is due again.
  const isOrdinary = outcome === 'landed' && claimed.claims === 1 && claimed.failures === 0
  if (!isOrdinary && outcome !== 'raced') {
    const { status, mediaComplete } = landing
    const result = { status, outcome, media: landing.media.length, media_complete: mediaComplete }
    deps.logger.info({ ...idsOf(deps, ready), ...result }, 'delivery processed')
  }
  deps.onProcessed({ landing, outcome, receivedAt: claimed.receivedAt })
  trace(deps, ready, started, { outcome })
}

function idsOf({ traces }: LandingDeps, { claimed, landing }: Ready) {
  return {
    delivery_id: claimed.deliveryId,
    webhook_id: claimed.webhookId,
    request_id: landing.requestId,
    trace_id: loggedTraceId(claimed, traces),
  }
}

/** `failure`: only the code, since Postgres's message may quote values. */
type TraceEnd = { outcome: LandingOutcome } | { outcome: 'failed'; failure: string }

function trace({ traces }: LandingDeps, { claimed, landing }: Ready, started: number, end: TraceEnd): void {
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
