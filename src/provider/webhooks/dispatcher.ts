import { randomUUID } from 'node:crypto'
import type { Logger } from '../../platform/logger.ts'
import type { Poster } from '../../platform/outward/poster.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { doublingPauseMs } from '../../wire/backoff.ts'
import { sign } from '../../wire/signature.ts'
import { readSigningSecret, UnreadableSecretError } from '../accounts/keys.ts'
import { strikes } from '../domain/faults.ts'
import { createFairLanes } from './fair-lanes.ts'
import { createLaneWalk } from './lane-walk.ts'
import { claimDue, type ClaimedDelivery, findDueLanes } from './outbox-claims.ts'
import { failAbandoned, settleAttempt } from './outbox.ts'

/** Lanes that one statement looks at: some hundredths of a second. */
const lanesPerPage = 2000
/** Beyond the deadline of an attempt, so that only a dead process's attempt is taken over. */
const leaseMarginMs = 10_000

export type DispatcherDeps = {
  db: Database
  secretKey: Buffer
  poster: Poster
  /** Pauses between attempts (spec, Delivery rules 3), and the deadline of one. */
  pauses: { baseMs: number; capMs: number }
  timeoutMs: number
  userAgent: string
  clock: () => Date
  /** For the time that is signed. */
  hostClock?: () => Date
  random: () => number
  logger: Logger
}

export type Dispatcher = {
  /** One tick of the spec's "dispatch runs every 30 seconds": everything that is due by now is sent. */
  runOnce: () => Promise<{ more: boolean }>
  /** Claims nothing any more; settles when the attempts in flight have. */
  drain: () => Promise<void>
}

/**
 * Sends the outbox. A tick says until when deliveries are due, and has the lanes
 * looked for in which there are any; from then on each attempt that ends makes
 * room for the next, so that thousands go out in one tick. What may start is
 * shared fairly (fair-lanes.ts): no account and no host delays another.
 */
export function createDispatcher(deps: DispatcherDeps, cut: AbortSignal): Dispatcher {
  const lanes = createFairLanes()
  const walk = createLaneWalk({ find: (after) => findDueLanes(deps.db, { after, dueBy, limit: lanesPerPage }), lanes })
  const running = new Set<Promise<void>>()
  let dueBy = new Date(0)
  let draining = false
  let pumping: Promise<void> | undefined
  let again = false

  const start = (claimed: ClaimedDelivery) => {
    const attempt = attemptDelivery(deps, claimed, cut)
      .catch((error: unknown) =>
        deps.logger.error({ err: error, delivery_id: claimed.id }, 'delivery attempt not settled, its lease will end'),
      )
      .finally(() => {
        running.delete(attempt)
        lanes.giveBack([{ ...claimed, count: 1 }])
        pump().catch((error: unknown) =>
          deps.logger.error({ err: error }, 'claiming deliveries failed, the next tick tries again'),
        )
      })
    running.add(attempt)
  }

  const claimOnce = async () => {
    if (draining) return
    // A page at a time, so that what is found starts before all is seen.
    if (await walk.look()) again = true
    const chosen = lanes.choose()
    if (chosen.length === 0) return
    for (const lane of chosen) if (walk.isCut(lane.accountId)) lanes.forget(lane)
    const leaseUntil = new Date(deps.clock().getTime() + deps.timeoutMs + leaseMarginMs)
    const request = { token: randomUUID(), dueBy, leaseUntil, lanes: chosen }
    const claimed = await claimDue(deps.db, request).catch((error: unknown) => {
      lanes.giveBack(chosen)
      throw error
    })
    for (const lane of chosen) {
      const missing =
        lane.count - claimed.filter((one) => one.accountId === lane.accountId && one.host === lane.host).length
      if (missing === 0) continue
      lanes.forget(lane)
      lanes.giveBack([{ ...lane, count: missing }])
      again = true
    }
    for (const delivery of claimed) start(delivery)
  }

  // One claim at a time; whoever asks meanwhile gets one more after it.
  const pump = async (): Promise<void> => {
    again = true
    pumping ??= (async () => {
      try {
        while (again) {
          again = false
          await claimOnce()
        }
      } finally {
        pumping = undefined
      }
    })()
    return pumping
  }

  return {
    runOnce: async () => {
      dueBy = deps.clock()
      walk.begin()
      await failAbandoned(deps.db, dueBy)
      await pump()
      return { more: false }
    },
    drain: async () => {
      draining = true
      await pumping
      await Promise.all(running)
    },
  }
}

async function attemptDelivery(deps: DispatcherDeps, claimed: ClaimedDelivery, cut: AbortSignal): Promise<void> {
  const startedAt = deps.clock()
  const started = performance.now()
  const outcome = await send(deps, claimed, cut)
  // Another process takes it over, and the receiver knows the id.
  if (cut.aborted && !outcome.ok) return
  if (outcome.ok && strikes(claimed.faults?.duplicate, deps.random)) await send(deps, claimed, cut)

  const now = deps.clock()
  const attempt = { startedAt, durationMs: performance.now() - started, ...outcome }
  const mayRetry = !outcome.ok && claimed.attempt < claimed.maxAttempts
  const retryAt = mayRetry ? new Date(now.getTime() + doublingPauseMs(claimed.attempt, deps.pauses)) : undefined
  const settled = await settleAttempt(deps.db, claimed, attempt, { retryAt, now })
  const facts = {
    delivery_id: claimed.id,
    host: claimed.host,
    attempt: claimed.attempt,
    status: outcome.httpStatus,
    settled,
  }
  deps.logger.info({ ...facts, ok: outcome.ok, retry_at: retryAt?.toISOString() }, 'webhook attempt')
}

/** The same id and bytes in every attempt, with the time and so the signature of this one (spec, Events). */
async function send(
  { db, secretKey, poster, userAgent, clock, hostClock = clock, random, logger }: DispatcherDeps,
  claimed: ClaimedDelivery,
  cut: AbortSignal,
) {
  const secret = await readSigningSecret(db, claimed.keyId, secretKey).catch((error: unknown) => {
    // That Postgres did not answer says nothing about the key.
    if (!(error instanceof UnreadableSecretError)) throw error
    logger.error(
      { err: error, key_id: claimed.keyId },
      'signing secret cannot be read: was PROVIDER_SECRET_KEY changed?',
    )
    return undefined
  })
  if (secret === undefined)
    return { ok: false, httpStatus: undefined, detail: 'not sent: the signing secret of the key cannot be read' }
  const body = Buffer.from(claimed.body, 'utf8')
  const timestampSeconds = Math.floor(hostClock().getTime() / 1000)
  const wrong = strikes(claimed.faults?.bad_signature, random)
  const headers = {
    'content-type': 'application/json',
    'user-agent': userAgent,
    'x-service-webhook-id': claimed.id,
    'x-service-timestamp': String(timestampSeconds),
    'x-service-signature': sign(body, wrong ? `not ${secret}` : secret, timestampSeconds),
  }
  return poster.post({ url: claimed.url, headers, body }, cut)
}
