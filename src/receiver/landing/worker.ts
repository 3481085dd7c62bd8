import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from '../../runtime/logger.ts'
import { isAboutTheRow, metALock, postgresMessage } from '../../runtime/postgres/errors.ts'
import type { Database } from '../../runtime/postgres/postgres.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import type { Notification } from '../../wire/schemas.ts'
import { deliveryIdRange, laneOf, parseNotification } from '../domain/delivery.ts'
import { environmentsOf, type Environment, type Keys } from '../domain/keys.ts'
import type { Fetcher } from '../fetching/fetcher.ts'
import { claim, giveBack, park, retryOrPark, type Claimed, type Lane } from './inbox.ts'
import { land, type LandingOutcome } from './land.ts'
import { landingOfNotification, landingOfResult, type Landing, type Origin } from './landing.ts'
import { inTurns, wavesOf } from './waves.ts'

export type WorkerDeps = {
  db: Database
  keys: () => Keys
  fetch: Fetcher
  mediaHosts: readonly string[] | undefined
  clock: () => Date
  logger: Logger
  /** Cuts the calls in flight. */
  cut: AbortSignal
  onLanded: (landed: { landing: Landing; outcome: LandingOutcome; receivedAt: Date | undefined }) => void
}

export type Round = { claimed: number; landed: number; parked: number; failed: number; deferred: number; more: boolean }

/** How many deliveries one round takes: many where one statement lands them all, few where each is fetched first. */
export const claimLimits: Record<Lane, number> = { direct: 500, fetch: 16 }

/** A delivery by its names; one that nobody claimed, a replay, has no `claims`. */
export type Identified = { deliveryId: string; claims: number | undefined; webhookId: string; keyName: string }

/** The body stays behind: what is held until it is landed is what was parsed of it. */
type Held = Omit<Claimed, 'body'>
type Ready = { claimed: Held; landing: Landing }

/** The bodies that one round takes: what is made of them, and sent to Postgres, is several times as much. */
const maxClaimBytes = 8 * 1024 * 1024
/** Giving back is worth trying for about as long as the lease would take to do it. */
const giveBackTries = 8
const giveBackPause = { baseMs: 250, capMs: 4000 }

const turnMs = 1000
const maxDeferMs = 300_000
/** Tries of a row that somebody's transaction holds: not its own fault, so they do not count. */
const lockedPause = { baseMs: 1000, capMs: 15_000 }

/** One round of a lane: claim, fetch what has to be fetched, land all of it in as few statements as possible. */
export async function runOnce(deps: WorkerDeps, lane: Lane): Promise<Round> {
  const limit = claimLimits[lane]
  const claimed = await claim(deps.db, { lane, limit, maxBytes: maxClaimBytes, now: deps.clock() })
  try {
    const prepared = await Promise.all(claimed.map((one) => prepare(deps, one)))
    const ready = prepared.flatMap((one) => (one === 'parked' ? [] : [one]))
    const { now, later } = inTurns(ready)
    let failed = 0
    for (const wave of wavesOf(now)) failed += await landWave(deps, wave)
    if (later.length > 0) await defer(deps, later)
    const bytes = claimed.reduce((sum, { body }) => sum + body.length, 0)
    return {
      claimed: claimed.length,
      landed: now.length - failed,
      parked: prepared.length - ready.length,
      failed,
      deferred: later.length,
      more: claimed.length === limit || bytes >= maxClaimBytes,
    }
  } catch (error) {
    await returnClaims(deps, claimed)
    throw error
  }
}

/** Deliveries of a request that has had its turn in this round, each at the time of a later one: no other waits for them. */
async function defer({ db, clock, logger }: WorkerDeps, later: readonly { one: Ready; turn: number }[]): Promise<void> {
  const now = clock()
  const claims = later.map(({ one: { claimed }, turn }) => ({
    ...claimed,
    dueAt: new Date(now.getTime() + Math.min(turn * turnMs, maxDeferMs)),
  }))
  await giveBack(db, claims, now)
  logger.info({ deliveries: later.length, request_id: later[0]?.one.landing.requestId }, 'many deliveries of one request take turns')
}

/** After a round that Postgres ended: as soon as it is back, nobody has to wait for our leases. */
async function returnClaims(deps: WorkerDeps, claimed: readonly Claimed[]): Promise<void> {
  for (let tries = 1; tries <= giveBackTries && !deps.cut.aborted; tries += 1) {
    try {
      return await giveBack(deps.db, claimed, deps.clock())
    } catch (error) {
      deps.logger.warn({ err: error, deliveries: claimed.length, tries }, 'claimed deliveries could not be given back')
      await delay(jitteredPauseMs(tries, giveBackPause, Math.random), undefined, { signal: deps.cut }).catch(() => {})
    }
  }
}

/** Turns a delivery into what is to be written. No transaction is open while the provider is called. */
async function prepare(deps: WorkerDeps, { body, ...claimed }: Claimed): Promise<Ready | 'parked'> {
  const parsed = parseNotification(body)
  if (!parsed.ok) {
    await park(deps.db, { claimed, reason: parsed.reason, detail: 'not a notification', now: deps.clock() })
    deps.logger.info(
      { delivery_id: claimed.deliveryId, webhook_id: claimed.webhookId, outcome: 'parked', reason: parsed.reason },
      'delivery processed',
    )
    return 'parked'
  }
  return { claimed, landing: await landingOf(deps, claimed, parsed.notification) }
}

/** What is to be written for a delivery: from the full result where one is needed and to be had, else from the webhook. */
export async function landingOf(deps: WorkerDeps, delivery: Identified, notification: Notification): Promise<Landing> {
  const origin = originOf(deps, delivery)
  if (laneOf(notification) === 'direct') return landingOfNotification(notification, origin)
  const { answer, keyName } = await deps.fetch({
    requestId: notification.request_id,
    keyName: delivery.keyName,
    purpose: 'landing',
    signal: deps.cut,
  })
  // Whatever kept the full result from us, readers have what the webhook carried now; the reconciler completes it.
  if (answer.kind !== 'result') return landingOfNotification(notification, origin)
  // A retired key may have signed, whose environment nobody knows; that of the key which knows the result is known.
  return landingOfResult(answer.result, { ...origin, environment: environmentNamed(deps, keyName) ?? origin.environment })
}

function originOf(deps: WorkerDeps, { deliveryId, claims, webhookId, keyName }: Identified): Origin {
  return {
    source: 'webhook',
    keyName,
    environment: environmentNamed(deps, keyName),
    delivery: { id: deliveryId, claims, ...deliveryIdRange(webhookId) },
    mediaHosts: deps.mediaHosts,
    now: deps.clock(),
  }
}

function environmentNamed({ keys }: WorkerDeps, keyName: string | undefined): Environment | undefined {
  return keyName === undefined ? undefined : keys().byName.get(keyName)?.environment
}

/** Lands a wave; one that Postgres refuses is halved until the row that is to blame stands alone. Answers how many failed. */
async function landWave(deps: WorkerDeps, wave: readonly Ready[]): Promise<number> {
  const now = deps.clock()
  try {
    const outcomes = await land(
      deps.db,
      wave.map(({ landing }) => landing),
      { now, environments: environmentsOf(deps.keys()) },
    )
    for (const { claimed, landing } of wave) report(deps, { claimed, landing, outcome: outcomes.get(landing.requestId) ?? 'raced' })
    return 0
  } catch (error) {
    // Postgres itself failed: no delivery is to blame, and all of them are given back.
    if (!isAboutTheRow(error)) throw error
    const [first] = wave
    if (wave.length === 1 && first) return metALock(error) ? putOff(deps, first) : fail(deps, first, error)
    const half = Math.ceil(wave.length / 2)
    return (await landWave(deps, wave.slice(0, half))) + (await landWave(deps, wave.slice(half)))
  }
}

/** Its row is held by somebody's open transaction: tried again later, for as long as that lasts. */
async function putOff({ db, clock, logger }: WorkerDeps, { claimed, landing }: Ready): Promise<number> {
  const now = clock()
  const dueAt = new Date(now.getTime() + jitteredPauseMs(claimed.claims, lockedPause, Math.random))
  await giveBack(db, [{ ...claimed, dueAt }], now)
  logger.warn(
    { delivery_id: claimed.deliveryId, request_id: landing.requestId, retry_at: dueAt.toISOString() },
    'the row of a request is locked by an open transaction, landing it later',
  )
  return 1
}

async function fail(deps: WorkerDeps, { claimed, landing }: Ready, error: unknown): Promise<number> {
  const end = await retryOrPark(deps.db, {
    claimed,
    reason: 'landing_failed',
    detail: postgresMessage(error).slice(0, 500),
    now: deps.clock(),
  })
  deps.logger.error(
    { err: error, delivery_id: claimed.deliveryId, webhook_id: claimed.webhookId, request_id: landing.requestId, end },
    'a delivery could not be landed',
  )
  return 1
}

function report(deps: WorkerDeps, { claimed, landing, outcome }: Ready & { outcome: LandingOutcome }): void {
  deps.logger.info(
    {
      delivery_id: claimed.deliveryId,
      webhook_id: claimed.webhookId,
      request_id: landing.requestId,
      status: landing.status,
      outcome,
      media: landing.media.length,
      media_complete: landing.mediaComplete,
    },
    'delivery processed',
  )
  deps.onLanded({ landing, outcome, receivedAt: claimed.receivedAt })
}
