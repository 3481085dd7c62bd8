import type { Logger } from '../../platform/logger.ts'
import type { Poster } from '../../platform/outward/poster.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { doublingPauseMs } from '../../wire/backoff.ts'
import { UnusableSecretError } from '../../wire/standard-webhooks.ts'
import { readSigningSecret, UnreadableSecretError } from '../accounts/keys.ts'
import { strikes } from '../domain/faults.ts'
import { claimDue, type ClaimedDelivery, maxInFlight } from './outbox-claims.ts'
import { failAbandoned, recordAttempt } from './outbox.ts'
import { signedHeaders } from './shapes.ts'

export type DispatcherDeps = {
  db: Database
  secretKey: Buffer
  poster: Poster
  /** Pauses between attempts (spec, Delivery rules 3). */
  pauses: { baseMs: number; capMs: number }
  timeoutMs: number
  userAgent: string
  time: SharedTime
  /** The host's time, for signatures. Receivers compare it with their own clocks. */
  hostClock: () => Date
  random: () => number
  logger: Logger
  /** Called when an attempt has ended. Its place is free for another round. */
  onFree: () => void
}

/**
 * Sends the outbox in rounds, one at a time: at each tick, and when an attempt has ended. So thousands are sent in one
 * tick. The claim divides the places fairly (outbox-claims.ts), so that no account and no host blocks the others.
 */
export function createDispatcher(deps: DispatcherDeps, cut: AbortSignal) {
  const inFlight = new Map<ClaimedDelivery, Promise<void>>()
  const walk = new Map<string, string>()

  const start = (claimed: ClaimedDelivery) => {
    const attempt = attemptDelivery(deps, claimed, cut)
      .catch((error: unknown) =>
        deps.logger.error({ err: error, delivery_id: claimed.id }, 'delivery attempt not recorded, its lease will end'),
      )
      .finally(() => {
        inFlight.delete(claimed)
        deps.onFree()
      })
    inFlight.set(claimed, attempt)
  }

  /** Walks once around all accounts and hosts, from the end of the last walk. */
  const walkAround = async () => {
    const atEnd = new Set<string>()
    for (let isMore = true; isMore && inFlight.size < maxInFlight;) {
      isMore = false
      const { claimed, walked } = await claimDue(deps.db, {
        now: deps.time(),
        // The lease ends 10 s after the attempt's deadline, so that only a dead process loses an attempt.
        leaseSeconds: deps.timeoutMs / 1000 + 10,
        inFlight: [...inFlight.keys()],
        walk: Object.fromEntries(walk),
      })
      for (const delivery of claimed) start(delivery)
      for (const [key, continuesAfter] of Object.entries(walked)) {
        if (continuesAfter !== null) {
          walk.set(key, continuesAfter)
          isMore = true
        } else if (walk.delete(key) && !atEnd.has(key)) {
          // A walk that began in the middle continues at the start, once.
          atEnd.add(key)
          isMore = true
        }
      }
    }
  }

  return {
    /** One round: starts attempts of what is due, as far as there is room. */
    runOnce: async () => {
      await failAbandoned(deps.db, deps.time())
      await walkAround()
      return { more: false }
    },
    /** Resolves when the running attempts have ended. */
    drain: async () => void (await Promise.all(inFlight.values())),
  }
}

async function attemptDelivery(deps: DispatcherDeps, claimed: ClaimedDelivery, cut: AbortSignal): Promise<void> {
  const started = performance.now()
  const outcome = await send(deps, claimed, cut)
  // Another process will claim the delivery and send it with the same id.
  if (cut.aborted && !outcome.ok) return
  if (outcome.ok && strikes(claimed.faults?.duplicate, deps.random)) await send(deps, claimed, cut)

  const attempt = { durationMs: performance.now() - started, ...outcome }
  const mayRetry = !outcome.ok && claimed.attempts < claimed.max_attempts
  const retryAfterSeconds = mayRetry ? doublingPauseMs(claimed.attempts, deps.pauses) / 1000 : undefined
  const recorded = await recordAttempt(deps.db, claimed, attempt, { retryAfterSeconds, now: deps.time() })
  const { id: delivery_id, host, attempts } = claimed
  const facts = { delivery_id, host, attempt: attempts, status: outcome.httpStatus, recorded, ok: outcome.ok }
  deps.logger.info({ ...facts, retry_after_seconds: retryAfterSeconds }, 'webhook attempt')
}

/** Sends the same id and bytes in every attempt, with this attempt's time and signature (spec, Events). */
async function send(
  { db, secretKey, poster, userAgent, hostClock, random, logger }: DispatcherDeps,
  claimed: ClaimedDelivery,
  cut: AbortSignal,
) {
  const body = Buffer.from(claimed.body, 'utf8')
  const { id, url, account_id: accountId, api_key_id: keyId } = claimed
  const signed = strikes(claimed.faults?.bad_signature, random) ? Buffer.concat([body, Buffer.from(' ')]) : body
  try {
    const secret = await readSigningSecret(db, keyId, secretKey)
    const timestampSeconds = Math.floor(hostClock().getTime() / 1000)
    const headers = {
      'content-type': 'application/json',
      'user-agent': userAgent,
      ...signedHeaders(signed, { id, url, secret, accountId, secretKey, timestampSeconds }),
    }
    return await poster.post({ url, headers, body }, cut)
  } catch (error) {
    if (error instanceof UnusableSecretError) return notSent(error.message)
    // If Postgres does not answer, the key may still be valid.
    if (!(error instanceof UnreadableSecretError)) throw error
    const message = 'signing secret cannot be decrypted: check whether PROVIDER_SECRET_KEY changed'
    logger.error({ err: error, key_id: keyId }, message)
    return notSent('the signing secret of the key cannot be read')
  }
}

const notSent = (why: string) => ({ ok: false, httpStatus: undefined, detail: `not sent: ${why}` })
