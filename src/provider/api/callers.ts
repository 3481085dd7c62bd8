import type { Request, RequestHandler, Response } from 'express'
import { proveConnection } from '../../platform/http/connections.ts'
import { HttpError } from '../../platform/http/http.ts'
import { type Identify, invalidApiKey, readApiKey } from '../accounts/auth.ts'
import type { Caller } from '../accounts/identify.ts'
import { applyRateLimit } from '../accounts/rate-limit.ts'
import type { Scope } from '../domain/schema.ts'
import type { ProviderSettings } from '../settings.ts'
import type { SubmitDeps } from '../submit/submit.ts'
import { createAvailability } from './availability.ts'

export type ApiDeps = SubmitDeps & {
  settings: ProviderSettings
  identify: Identify
}

/** `signal` aborts when the caller has been answered with 503 or another error. */
export type Handler = (req: Request, res: Response, caller: Caller, signal: AbortSignal) => void | Promise<void>

export type AsCaller = (handler: Handler, scope?: Scope) => RequestHandler

/**
 * Identifies the caller, counts the request against its limits, checks the scope, then runs the route (spec,
 * Authentication). All callers share the limits on concurrency and time of availability.ts.
 */
export function asCaller({ logger, identify }: ApiDeps): AsCaller {
  const available = createAvailability(logger)
  return (handler, scope) => (req, res) =>
    available(async (signal) => {
      res.set('Cache-Control', 'no-store')
      const apiKey = readApiKey(req)
      const identified = apiKey === undefined ? null : await identify(apiKey)
      if (identified === null) throw invalidApiKey()
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
