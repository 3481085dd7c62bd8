import type { Response } from 'express'
import { HttpError } from '../runtime/http.ts'

/** Requests a minute (spec, Limits): of one key, and of all keys of an account. */
export type RateLimits = { perKey: number; perAccount: number }

const windowMs = 60_000

type Count = { hits: number; startedAt: Date }

/** The window with the least left, which is the one that the caller meets next. */
export type RateWindow = { limit: number; remaining: number; resetSeconds: number; exceeded: boolean }

export function rateWindow(key: Count, account: Count | undefined, limits: RateLimits, now: Date): RateWindow {
  const ofKey = windowOf(key, limits.perKey, now)
  if (account === undefined) return ofKey
  const ofAccount = windowOf(account, limits.perAccount, now)
  if (ofAccount.exceeded) return ofAccount
  return ofAccount.remaining < ofKey.remaining ? ofAccount : ofKey
}

function windowOf({ hits, startedAt }: Count, limit: number, now: Date): RateWindow {
  const resetMs = Math.min(Math.max(startedAt.getTime() + windowMs - now.getTime(), 0), windowMs)
  return { limit, remaining: Math.max(limit - hits, 0), resetSeconds: Math.ceil(resetMs / 1000), exceeded: hits > limit }
}

/** The three headers on every answer under /v1, and 429 once the window is used up (CONTRACT, RateLimit headers). */
export function applyRateLimit(res: Response, { limit, remaining, resetSeconds, exceeded }: RateWindow): void {
  res.set({ 'RateLimit-Limit': String(limit), 'RateLimit-Remaining': String(remaining), 'RateLimit-Reset': String(resetSeconds) })
  if (!exceeded) return
  const message = `more than ${limit} requests in a minute, try again in ${Math.max(resetSeconds, 1)} s`
  throw new HttpError(429, 'rate_limit_exceeded', message, { headers: { 'Retry-After': String(Math.max(resetSeconds, 1)) } })
}
