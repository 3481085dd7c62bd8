import type { Request, RequestHandler, Response } from 'express'
import { DeadlineError, withDeadline } from '../../platform/deadline.ts'
import { proveConnection } from '../../platform/http/connections.ts'
import { HttpError } from '../../platform/http/http.ts'
import type { Logger } from '../../platform/logger.ts'
import { isOutage } from '../../platform/postgres/errors.ts'
import { type Caller, type Identify, readApiKey } from '../accounts/identify.ts'
import { applyRateLimit } from '../accounts/rate-limit.ts'
import type { Scope } from '../domain/schema.ts'
import type { ProviderSettings } from '../settings.ts'
import type { SubmitDeps } from '../submit/submit.ts'

export type ApiDeps = SubmitDeps & {
  settings: ProviderSettings
  identify: Identify
}

/** `signal` aborts when the caller has been answered with 503 or another error. */
export type Handler = (req: Request, res: Response, caller: Caller, signal: AbortSignal) => void | Promise<void>

export type AsCaller = (handler: Handler, scope?: Scope) => RequestHandler

/**
 * Identifies the caller, counts the request against its limits, checks the scope, then runs the route (spec,
 * Authentication). All callers share the limits of createAvailability().
 */
export function asCaller({ logger, identify }: ApiDeps): AsCaller {
  const available = createAvailability(logger)
  return (handler, scope) => (req, res) =>
    available(async (signal) => {
      res.set('Cache-Control', 'no-store')
      const apiKey = readApiKey(req)
      const identified = apiKey === undefined ? null : await identify(apiKey)
      if (identified === null) throw new HttpError(401, 'invalid_api_key', 'the API key is missing, wrong or revoked')
      proveConnection(req.socket)
      const { caller, rate } = identified
      applyRateLimit(res, rate)
      if (scope && !caller.scopes.includes(scope)) {
        throw new HttpError(403, 'insufficient_scope', `this API key does not have the scope ${scope}`)
      }
      await handler(req, res, caller, signal)
    })
}

export function param(req: Request, name: string): string {
  const value = req.params[name]
  return typeof value === 'string' ? value : ''
}

/** Error codes of a full or read-only media folder. A sandbox submit may copy its sample there. */
const fullDiskCodes: ReadonlySet<unknown> = new Set(['ENOSPC', 'EDQUOT', 'EROFS'])

/**
 * Limits the work behind answers in number and time. A late answer, an outage of Postgres or a full disk becomes 503
 * with Retry-After. The signal aborts with the 503: a statement that was not sent by then is not sent.
 */
export function createAvailability(logger: Logger) {
  let inFlight = 0
  return async function available(work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    // Concurrent requests. Further ones would only wait in memory for a connection.
    if (inFlight >= 2000) throw unavailable('too many requests are being answered at this moment')
    inFlight += 1
    const late = new AbortController()
    const running = work(late.signal).finally(() => (inFlight -= 1))
    try {
      await withDeadline(running, 10_000, 'the answer')
    } catch (error) {
      late.abort(error)
      const isFull = error instanceof Error && 'code' in error && fullDiskCodes.has(error.code)
      if (!(isFull || error instanceof DeadlineError || isOutage(error))) throw error
      const cause = isFull ? 'media folder is full or read-only' : 'database cannot be reached or is too slow'
      logger.warn({ err: error }, `answered 503: the ${cause}`)
      throw unavailable('the service cannot be reached at this moment')
    }
  }
}

function unavailable(message: string): HttpError {
  return new HttpError(503, 'unavailable', message, { headers: { 'Retry-After': '5' } })
}
