import { type Express, type Request, Router } from 'express'
import { z } from 'zod'
import { createApp } from '../../platform/http/app.ts'
import { HttpError, methodNotAllowed, notFound } from '../../platform/http/http.ts'
import { apiDocs } from '../../platform/pages/api-docs.ts'
import { submitBodySchema } from '../../wire/schemas.ts'
import { activeModel, activeModels, catalogEntry, modelResource } from '../catalog/catalog.ts'
import { strikes } from '../domain/faults.ts'
import { mediaPath } from '../engines/media-store.ts'
import { localized } from '../messages/messages.ts'
import { cancelRequest } from '../queue/requests.ts'
import { readIdempotencyKey } from '../submit/idempotency.ts'
import { estimateCredits, submit } from '../submit/submit.ts'
import { readBody } from './body.ts'
import { type ApiDeps, asCaller, type AsCaller, type Handler, param } from './callers.ts'
import { serveMedia } from './media-files.ts'
import openApiDocument from './openapi.json' with { type: 'json' }
import { readAccount, readResult, readStatus, unknownRequest } from './results.ts'
import { shapesRouter } from './shapes.ts'

/** Creates the API: /v1 of the spec, its documentation, and media. Health is answered by platform/http/readiness.ts. */
export function createApi(deps: ApiDeps): Express {
  const { logger, settings } = deps
  const as = asCaller(deps)
  const mount = (app: Express) => {
    app.all(['/healthz', '/readyz'], methodNotAllowed('GET', 'HEAD'))
    app.use(docsRouter(settings.baseUrl)).use(mediaPath(settings), serveMedia(settings.mediaDir))
    app.use('/v1', v1(deps, as))
    if (!settings.production) app.use(shapesRouter(deps, as))
  }
  return createApp({ logger, trustProxy: settings.trustProxy, localize: localized, mount })
}

/** Serves `/openapi.json`, and `/docs`, which renders it. Both need no key. */
export function docsRouter(baseUrl: string): Router {
  const document = { ...openApiDocument, servers: [{ url: baseUrl }] }
  const router = Router({ caseSensitive: true, strict: true })
  router.get('/openapi.json', (_req, res) => void res.json(document))
  router.all('/openapi.json', methodNotAllowed('GET', 'HEAD'))
  return router.use(apiDocs({ title: 'Generation queue API', document: '/openapi.json' }))
}

function v1(deps: ApiDeps, as: AsCaller): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const only = (...methods: string[]) => as((req, res) => void methodNotAllowed(...methods)(req, res, () => {}))
  const nothing = as((req, res) => void notFound(req, res, () => {}))

  // Any answer may be an error in the caller's language.
  router.use((_req, res, next) => next(void res.vary('Accept-Language')))
  router.use((req, res, next) => {
    try {
      decodeURIComponent(req.path)
    } catch {
      return nothing(req, res, next)
    }
    return next()
  })
  router.get('/models', as(listModels(deps))).all('/models', only('GET', 'HEAD'))
  router.post('/models/:model/estimate', as(estimate(deps))).all('/models/:model/estimate', only('POST'))
  router.post('/models/:model', as(createGeneration(deps), 'generate'))
  router.get('/models/:model', as(showModel(deps))).all('/models/:model', only('GET', 'HEAD', 'POST'))
  router.get('/requests/:id/status', as(showStatus(deps))).all('/requests/:id/status', only('GET', 'HEAD'))
  router.post('/requests/:id/cancel', as(cancel(deps), deps.settings.cancelEndpoint ? 'generate' : undefined))
  if (deps.settings.cancelEndpoint) router.all('/requests/:id/cancel', only('POST'))
  router.get('/requests/:id', as(showResult(deps))).all('/requests/:id', only('GET', 'HEAD'))
  router.get(
    '/account',
    as(async (_req, res, { accountId }) => void res.json(await readAccount(deps.db, accountId))),
  )
  router.all('/account', only('GET', 'HEAD'))
  router.use(nothing)
  return router
}

const catalogQuerySchema = z.object({ type: z.enum(['image', 'video', 'audio']).optional() })
/** An estimate takes the body of a submit as it is, and ignores its webhook_url. */
const estimateBodySchema = submitBodySchema.extend({ webhook_url: z.unknown().optional() })

function listModels({ catalog }: ApiDeps): Handler {
  return (req, res, caller) => {
    const query = catalogQuerySchema.safeParse(req.query)
    if (!query.success) throw new HttpError(400, 'invalid_query', 'type must be image, video or audio')
    const { type } = query.data
    const models = activeModels(catalog(), caller).filter((model) => type === undefined || model.type === type)
    res.json({ data: models.map(catalogEntry) })
  }
}

function showModel({ catalog }: ApiDeps): Handler {
  return (req, res, caller) => void res.json(modelResource(activeModel(catalog(), caller, param(req, 'model'))))
}

function estimate({ catalog, settings }: ApiDeps): Handler {
  return async (req, res, caller) => {
    // Before the body is read: an unknown model is reported before faults of the input.
    const model = activeModel(catalog(), caller, param(req, 'model'))
    const { input } = await readBody(req, res, estimateBodySchema)
    res.json({ credits: estimateCredits(model, input, settings) })
  }
}

function createGeneration(deps: ApiDeps): Handler {
  return async (req, res, caller, signal) => {
    const body = await readBody(req, res, submitBodySchema)
    signal.throwIfAborted()
    const idempotencyKey = readIdempotencyKey(req.get('idempotency-key'))
    res.json(await submit(deps, { caller, slug: param(req, 'model'), body, idempotencyKey, signal }))
  }
}

function showStatus(deps: ApiDeps): Handler {
  return async (req, res, caller) => void res.json(await readStatus(deps, caller, lookupOf(req)))
}

function showResult(deps: ApiDeps): Handler {
  return async (req, res, caller) => {
    const { kind, body } = await readResult(deps, caller, lookupOf(req))
    if (kind === 'running') return void res.status(202).json(body)
    if (body.status === 'FAILED') body.error.message = localized(req, res, body.error.message)
    if (!strikes(caller.faults?.truncated, deps.random)) return void res.json(body)
    const text = JSON.stringify(body)
    res.type('json').send(text.slice(0, text.length / 2))
  }
}

/** Answers a cancel. Off by default, because the public contract has no cancel (spec, Cancel; decisions, cancel). */
function cancel(deps: ApiDeps): Handler {
  return async (req, res, caller, signal) => {
    if (!deps.settings.cancelEndpoint) return void notFound(req, res, () => {})
    const lookup = lookupOf(req)
    const { request_id: id } = await readStatus(deps, caller, lookup)
    signal.throwIfAborted()
    if (!(await cancelRequest(deps.db, id, true))) {
      throw new HttpError(409, 'not_cancelable', 'only a request that is IN_QUEUE can be canceled')
    }
    res.json(await readStatus(deps, caller, lookup))
  }
}

/** Only `?logs=1` requests the logs (decisions, how logs are asked for). */
function lookupOf(req: Request) {
  const requestId = param(req, 'id')
  if (requestId === '') throw unknownRequest(requestId)
  return { requestId, withLogs: req.query['logs'] === '1' }
}
