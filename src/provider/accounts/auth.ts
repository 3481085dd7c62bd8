import type { IncomingMessage } from 'node:http'
import { HttpError } from '../../platform/http/http.ts'
import { createNaturalBatch } from '../../platform/natural-batch.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { sha256 } from '../domain/secret-box.ts'
import { type Identified, identifyAll } from './identify.ts'
import { isKeyShaped } from './keys.ts'
import type { RateLimits } from './rate-limit.ts'

const authorizationPattern = /^(?:Bearer|Key) +(\S+) *$/i

/**
 * Reads the API key of a request in any of the spec's three forms (Authentication 1). Returns undefined if it is
 * missing, if two credentials disagree, or if its shape is wrong. A wrong shape never reaches Postgres.
 */
export function readApiKey({ headers, headersDistinct }: IncomingMessage): string | undefined {
  const [authorization, ...others] = new Set(headersDistinct['authorization'])
  if (others.length > 0) return undefined
  const fromAuthorization =
    authorization === undefined ? undefined : (authorizationPattern.exec(authorization)?.[1] ?? '')
  const custom = headers['x-api-key']
  const fromCustom = custom === undefined ? undefined : String(custom).trim()
  if (fromAuthorization !== undefined && fromCustom !== undefined && fromAuthorization !== fromCustom) return undefined
  const key = fromAuthorization ?? fromCustom
  return key !== undefined && key.length <= 200 && isKeyShaped(key) ? key : undefined
}

export function invalidApiKey(): HttpError {
  return new HttpError(401, 'invalid_api_key', 'the API key is missing, wrong or revoked')
}

/** Resolves to null for an unknown or revoked key. */
export type Identify = (apiKey: string) => Promise<Identified | null>

type IdentifyDeps = { db: Database; limits: RateLimits; clock: () => Date; time: SharedTime }
type Refusal = { identified: Identified; untilMs: number }

/**
 * Identifies the callers of this process. Concurrent calls share a statement. Keys that this process has not yet found
 * valid wait in a separate queue, one statement at a time, so that guesses do not delay callers with a known key.
 */
export function createIdentify({ db, limits, clock, time }: IdentifyDeps): Identify {
  const answerAll = (keys: readonly string[]) => identifyAll(db, keys, limits, time())
  const known = createNaturalBatch({ answerAll })
  const strangers = createNaturalBatch({ answerAll, parallel: 1 })
  const seen = new Map<string, Refusal | undefined>()
  let strangersWaiting = 0

  const remember = (hash: string, identified: Identified | null) => {
    if (identified === null) {
      seen.delete(hash)
      return null
    }
    const [oldest] = seen.keys()
    // The process remembers at most 10,000 valid keys, at about 100 bytes each.
    if (seen.size >= 10_000 && oldest !== undefined && !seen.has(hash)) seen.delete(oldest)
    // A key over its limit is refused from memory for a second: each process needs about one statement per second.
    seen.set(hash, identified.rate.exceeded ? { identified, untilMs: clock().getTime() + 1000 } : undefined)
    return identified
  }
  return async (apiKey) => {
    const hash = sha256(apiKey).toString('base64')
    if (seen.has(hash)) {
      const refusal = seen.get(hash)
      if (refusal && clock().getTime() < refusal.untilMs) return refusal.identified
      return remember(hash, await known(apiKey))
    }
    // Limits the callers with unseen keys that wait, so that guesses cannot fill the memory.
    if (strangersWaiting >= 500) {
      const message = 'too many unknown API keys are being looked up at this moment'
      throw new HttpError(503, 'unavailable', message, { headers: { 'Retry-After': '1' } })
    }
    strangersWaiting += 1
    try {
      return remember(hash, await strangers(apiKey))
    } finally {
      strangersWaiting -= 1
    }
  }
}
