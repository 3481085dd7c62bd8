import type { IncomingHttpHeaders } from 'node:http'
import { HttpError } from '../runtime/http.ts'
import type { Database } from '../runtime/postgres.ts'
import { type Identified, identifyAll } from './identify.ts'
import { createNaturalBatch } from './natural-batch.ts'
import type { RateLimits } from './rate-limit.ts'

const authorizationPattern = /^(?:Bearer|Key) +(\S+) *$/i
const maxKeyLength = 200

/**
 * The API key of a request in any of the spec's three forms (Authentication 1).
 * Undefined when there is none, or when two credentials disagree.
 */
export function readApiKey(headers: IncomingHttpHeaders): string | undefined {
  const authorization = headers.authorization
  const fromAuthorization = authorization === undefined ? undefined : (authorizationPattern.exec(authorization)?.[1] ?? '')
  const custom = headers['x-api-key']
  const fromCustom = custom === undefined ? undefined : String(custom).trim()
  if (fromAuthorization !== undefined && fromCustom !== undefined && fromAuthorization !== fromCustom) return undefined
  const key = fromAuthorization ?? fromCustom
  return key === undefined || key === '' || key.length > maxKeyLength ? undefined : key
}

export function invalidApiKey(): HttpError {
  return new HttpError(401, 'invalid_api_key', 'the API key is missing, wrong or revoked')
}

/** Null for a key that is unknown or revoked. */
export type Identify = (apiKey: string) => Promise<Identified | null>

const maxBatch = 500
const batchesUnderWay = 2

/** Identifies the callers of this process, the ones that ask at the same time together. */
export function createIdentify({ db, limits, clock }: { db: Database; limits: RateLimits; clock: () => Date }): Identify {
  return createNaturalBatch({ answerAll: (keys) => identifyAll(db, keys, limits, clock()), maxBatch, parallel: batchesUnderWay })
}
