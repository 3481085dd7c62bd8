import { type Request, type RequestHandler, type Response, Router } from 'express'
import { z } from 'zod'
import { HttpError } from '../../platform/http/http.ts'
import type { Logger } from '../../platform/logger.ts'
import { actorOf } from '../../platform/pages/access.ts'
import type { AuditedAction, Detail } from '../../platform/pages/audit.ts'
import { readForm } from '../../platform/pages/form.ts'
import { plainWords } from '../../platform/plain-words.ts'
import { requestIdSchema } from '../../wire/schemas.ts'
import type { CreatedKey } from '../accounts/keys.ts'
import { type Faults, faultsSchema } from '../domain/faults.ts'
import { environments, scopes } from '../domain/schema.ts'
import * as commands from '../operating/commands.ts'
import { audited } from '../operating/commands.ts'
import type { ProviderSettings } from '../settings.ts'
import type { SubmitDeps } from '../submit/submit.ts'
import { accountPath } from './parts.ts'

/** Omits `by`, so that a change compiles only with the actor from actingIn(). */
export type ConsoleDeps = Omit<commands.CommandDeps, 'by'> &
  SubmitDeps & {
    settings: ProviderSettings
    logger: Logger
  }

const scopeSchema = z.enum(scopes)
const newKeySchema = z.object({
  /** The id of the form. A form that is sent twice creates one key. */
  id: requestIdSchema.optional(),
  account: z.string().trim(),
  name: z.string().trim(),
  environment: z.enum(environments),
  scopes: z.union([z.array(scopeSchema), scopeSchema.transform((one) => [one])]).default([]),
})
const ofAccountSchema = z.object({ account: z.string() })
const creditsSchema = z.object({ id: requestIdSchema.optional(), credits: z.string().trim() })
const switchSchema = z.object({
  slug: z.string(),
  environment: z.enum(environments),
  enabled: z.enum(['true', 'false']),
})

/** Adds the signed-in person as the actor for the audit. */
export function actingIn(deps: ConsoleDeps, req: Request): ConsoleDeps & commands.CommandDeps {
  return { ...deps, by: { via: 'console', actor: actorOf(req) } }
}

type AuditedWork<T> = Pick<AuditedAction, 'action' | 'target'> & {
  detailOf: (result: T) => Detail | undefined
  work: () => Promise<T>
}

/** Runs and audits an action that the command line does not have. */
export function auditedHere<T>(deps: ConsoleDeps, req: Request, { work, ...action }: AuditedWork<T>): Promise<T> {
  return audited(deps, { ...actingIn(deps, req).by, ...action }, work)
}

/** The actions of the forms. They call the functions of the command line, then redirect, or show the new key. */
export function accountActions(
  deps: ConsoleDeps,
  showKey: (req: Request, res: Response, key: CreatedKey) => void,
): Router {
  const router = Router()
  router.post('/keys', readForm, async (req, res) => {
    const wanted = form(req, newKeySchema)
    if (wanted.scopes.length === 0) throw new HttpError(400, 'invalid_form', 'choose at least one scope')
    showKey(req, res, await commands.createKey(actingIn(deps, req), wanted))
  })
  router.post('/keys/:id/revoke', readForm, async (req, res) => {
    const { account } = form(req, ofAccountSchema)
    await commands.revokeKey(actingIn(deps, req), idOf(req))
    res.redirect(303, accountPath(account))
  })
  router.post('/keys/:id/faults', readForm, async (req, res) => {
    await commands.setFaults(actingIn(deps, req), idOf(req), faultsOf(req))
    res.redirect(303, `/keys/${idOf(req)}/faults`)
  })
  router.post('/accounts/:account/credits', readForm, async (req, res) => {
    const { id, credits } = form(req, creditsSchema)
    const account = String(req.params['account'])
    await commands.grantCredits(actingIn(deps, req), { account, credits, id })
    res.redirect(303, accountPath(account))
  })
  router.post('/requests/:id/cancel', async (req, res) => {
    await commands.cancelRequest(actingIn(deps, req), idOf(req))
    res.redirect(303, `/requests/${idOf(req)}`)
  })
  router.post('/models', readForm, async (req, res) => {
    const { slug, environment, enabled } = form(req, switchSchema)
    await commands.setModelEnabled(actingIn(deps, req), { slug, environment, enabled: enabled === 'true' })
    res.redirect(303, `/models/${encodeURIComponent(slug)}`)
  })
  return router
}

/** Answers 404 to addresses with NUL, which no stored name contains, because Postgres refuses it. */
export const refuseNul: RequestHandler = (req, _res, next) => {
  if (req.originalUrl.includes('%00')) throw new HttpError(404, 'not_found', 'no name contains NUL')
  next()
}

function form<T extends z.ZodType>(req: Request, schema: T): z.infer<T> {
  const values = Object.values(req.body ?? {}).flat()
  if (values.some((value) => String(value).includes('\0')))
    throw new HttpError(400, 'invalid_form', 'the form must not contain NUL')
  const parsed = schema.safeParse(req.body, plainWords)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  throw new HttpError(400, 'invalid_form', `${issue?.path.join('.') || 'the form'}: ${issue?.message ?? 'is invalid'}`)
}

/** Reads the faults of the form. An empty field injects none. Null if all fields are empty. */
function faultsOf(req: Request): Faults | null {
  const fields = form(req, z.record(z.string(), z.string()))
  const given = Object.entries(fields).filter(([name, value]) => name in faultsSchema.shape && value.trim() !== '')
  return given.length === 0 ? null : commands.parseFaults(given.map(([name, value]) => `${name}=${value}`))
}

export function idOf(req: Request): string {
  const id = requestIdSchema.safeParse(req.params['id'])
  if (!id.success) throw new HttpError(404, 'not_found', 'there is nothing with this id')
  return id.data
}
