import type { Logger } from '../../platform/logger.ts'
import {
  databaseCodeOf,
  isAboutTheRow,
  metALock,
  postgresMessage,
  waitedToCommit,
} from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import { environmentsOf } from '../domain/keys.ts'
import { loggedTraceId, type DeliveryTraces } from '../domain/trace.ts'
import { giveBack, park, retryOrPark, type Claimed } from './inbox.ts'
import { land, type LandingOutcome } from './land.ts'
import type { Landing, LandingDeps } from './landing.ts'
import { lockedAmong } from './locked.ts'
import { lockWaitMs } from './statement-parts.ts'
import { inTurns, wavesOf } from './waves.ts'

export type WorkerDeps = LandingDeps & {
  db: Database
  time: SharedTime
  logger: Logger
  onLanded: (landed: { landing: Landing; outcome: LandingOutcome; receivedAt: Date | undefined }) => void
  traces?: DeliveryTraces | undefined
}

/** A delivery that is claimed by this process; its body stays behind once it is parsed. */
export type HeldDelivery = Omit<Claimed, 'body'>

/** A delivery with what is written for it. */
export type Ready = { claimed: HeldDelivery; landing: Landing }

export type LandAllDeps = WorkerDeps & {
  /** Called before a delivery gets another time, or an end of its own: it is no longer held. */
  onReturned: (deliveryId: string) => void
  /** Ends it between two statements: what is left is somebody else's by then. */
  cut?: AbortSignal
}

export type Landed = { landed: number; failed: number; deferred: number }

const turnMs = 1000
const maxDeferMs = 300_000
/** Tries of a row that somebody's transaction holds: not its own fault, so they do not count. */
export const lockedPause = { baseMs: 1000, capMs: 15_000 }
/** Halves that meet a lock wait half as long for it: however many rows are held, each halving takes as long as the first wait. */
const leastLockWaitMs = 10
/** A commit that waits for others is waited for up to so long, twice as long each time; then Postgres itself is taken to have failed. */
const mostLockWaitMs = 4000

/** Lands all of it in as few statements as possible. Throws where Postgres itself failed: then some of it has landed, and some not. */
export async function landAll(deps: LandAllDeps, ready: readonly Ready[]): Promise<Landed> {
  const { now, later } = inTurns(ready)
  let failed = 0
  for (const wave of wavesOf(now)) failed += await landWave(deps, wave)
  if (later.length > 0) await defer(deps, later)
  return { landed: now.length - failed, failed, deferred: later.length }
}

/** Deliveries of a request that has had its turn in this round, each at the time of a later one: no other waits for them. */
async function defer(
  { db, clock, logger, onReturned }: LandAllDeps,
  later: readonly { one: Ready; turn: number }[],
): Promise<void> {
  const now = clock()
  const claims = later.map(({ one: { claimed }, turn }) => ({
    ...claimed,
    dueAt: new Date(now.getTime() + Math.min(turn * turnMs, maxDeferMs)),
  }))
  for (const { deliveryId } of claims) onReturned(deliveryId)
  await giveBack(db, claims, { now })
  logger.info(
    { deliveries: later.length, request_id: later[0]?.one.landing.requestId },
    'many deliveries of one request take turns',
  )
}

/** Lands a wave; one that Postgres refuses is halved until the row that is to blame stands alone. Answers how many failed. */
async function landWave(deps: LandAllDeps, whole: readonly Ready[], waitMs = lockWaitMs): Promise<number> {
  deps.cut?.throwIfAborted()
  const now = deps.clock()
  const started = performance.now()
  const outcomes = new Map<string, LandingOutcome>()
  const landings = whole.map(({ landing }) => landing)
  const failure = await land(
    deps.db,
    landings,
    { now, environments: environmentsOf(deps.keys()), waitMs },
    outcomes,
  ).then(
    () => undefined,
    (error: unknown) => ({ error }),
  )
  const wave: Ready[] = []
  for (const one of whole) {
    const outcome = outcomes.get(one.landing.requestId) ?? 'raced'
    // What was committed before another statement failed has landed all the same.
    if (failure && outcome === 'raced') wave.push(one)
    else report(deps, one, outcome, started)
  }
  return failure ? landAgain(deps, wave, { ...failure, waitMs, started }) : 0
}

type Refused = { error: unknown; waitMs: number; started: number }

async function landAgain(
  deps: LandAllDeps,
  wave: readonly Ready[],
  { error, waitMs, started }: Refused,
): Promise<number> {
  const [first] = wave
  const isAlone = wave.length === 1 && first !== undefined
  if (deps.traces && (isAlone || !isAboutTheRow(error))) for (const one of wave) traceFailure(deps, one, error, started)
  // In parts it would be as many commits more for the lock that all of them wait for.
  if (waitedToCommit(error) && waitMs < mostLockWaitMs) return landWave(deps, wave, waitMs * 2)
  // Postgres itself failed: no delivery is to blame, and all of them are given back.
  if (!isAboutTheRow(error)) throw error
  if (isAlone) return refused(deps, first, error)
  const again = metALock(error) ? Math.max(leastLockWaitMs, Math.round(waitMs / 2)) : waitMs
  const requestIds = wave.map(({ landing }) => landing.requestId)
  const locked = metALock(error) ? await lockedAmong(deps.db, requestIds) : new Set()
  if (locked.size > 0) {
    const isLocked = ({ landing }: Ready) => locked.has(landing.requestId)
    const free = wave.filter((one) => !isLocked(one))
    // The others first: they have waited for these once.
    const failed = free.length === 0 ? 0 : await landWave(deps, free, again)
    return failed + (await putOff(deps, wave.filter(isLocked)))
  }
  const half = Math.ceil(wave.length / 2)
  return (await landWave(deps, wave.slice(0, half), again)) + (await landWave(deps, wave.slice(half), again))
}

async function refused(deps: LandAllDeps, one: Ready, error: unknown): Promise<number> {
  if (metALock(error)) return putOff(deps, [one])
  deps.onReturned(one.claimed.deliveryId)
  return fail(deps, one, error)
}

/** Their rows are held by somebody's open transaction: tried again later, for as long as that lasts. */
async function putOff({ db, clock, logger, onReturned }: LandAllDeps, locked: readonly Ready[]): Promise<number> {
  const now = clock()
  const claims = locked.map(({ claimed }) => ({
    ...claimed,
    dueAt: new Date(now.getTime() + jitteredPauseMs(claimed.claims, lockedPause, Math.random)),
  }))
  for (const { deliveryId } of claims) onReturned(deliveryId)
  await giveBack(db, claims, { now, trouble: 'the row of its request is locked by an open transaction' })
  for (const { claimed, landing } of locked) {
    logger.warn(
      { delivery_id: claimed.deliveryId, request_id: landing.requestId },
      'the row of a request is locked by an open transaction, landing it later',
    )
  }
  return locked.length
}

async function fail(deps: WorkerDeps, { claimed, landing }: Ready, error: unknown): Promise<number> {
  const end = await retryOrPark(deps.db, {
    claimed,
    reason: 'landing_failed',
    detail: postgresMessage(error).slice(0, 500),
    now: deps.clock(),
  })
  deps.logger.error(
    {
      err: error,
      delivery_id: claimed.deliveryId,
      webhook_id: claimed.webhookId,
      request_id: landing.requestId,
      end,
      trace_id: loggedTraceId(claimed, deps.traces),
    },
    'a delivery could not be landed',
  )
  return 1
}

function report(deps: WorkerDeps, { claimed, landing }: Ready, outcome: LandingOutcome, started: number): void {
  // The ordinary end needs no line beside that of the arrival.
  const isOrdinary = outcome === 'landed' && claimed.claims === 1 && claimed.failures === 0
  if (!isOrdinary) logProcessed(deps, { claimed, landing }, outcome)
  deps.onLanded({ landing, outcome, receivedAt: claimed.receivedAt })
  deps.traces?.landed(claimed, { ...tracedLanding(landing, claimed, started), outcome })
}

function logProcessed({ logger, traces }: WorkerDeps, { claimed, landing }: Ready, outcome: LandingOutcome): void {
  logger.info(
    {
      delivery_id: claimed.deliveryId,
      webhook_id: claimed.webhookId,
      request_id: landing.requestId,
      status: landing.status,
      outcome,
      media: landing.media.length,
      media_complete: landing.mediaComplete,
      trace_id: loggedTraceId(claimed, traces),
    },
    'delivery processed',
  )
}

function traceFailure(deps: WorkerDeps, { claimed, landing }: Ready, error: unknown, started: number): void {
  // The code alone: the message of Postgres may quote what was to be written.
  const failure = databaseCodeOf(error) ?? 'failed'
  deps.traces?.landed(claimed, { ...tracedLanding(landing, claimed, started), outcome: 'failed', failure })
}

function tracedLanding({ requestId, status, media }: Landing, { webhookId }: HeldDelivery, started: number) {
  return { requestId, webhookId, status, media: media.length, ms: performance.now() - started }
}

/** An older release took it for a notification, or its rules have changed since. */
export async function parkMisunderstood(
  { db, clock, logger }: WorkerDeps,
  claimed: HeldDelivery,
  reason: string,
): Promise<void> {
  await park(db, { claimed, reason, detail: 'not a notification', now: clock() })
  logger.info(
    { delivery_id: claimed.deliveryId, webhook_id: claimed.webhookId, outcome: 'parked', reason },
    'delivery processed',
  )
}
