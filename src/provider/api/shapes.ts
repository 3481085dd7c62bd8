import { type ErrorRequestHandler, Router } from 'express'
import { z } from 'zod'
import { HttpError } from '../../platform/http/http.ts'
import { falKeyOf, falKeySetOf } from '../../wire/fal-signature.ts'
import { submit } from '../submit/submit.ts'
import { falFailure, predictionOf, type Shape, type ShapedJob, withShape } from '../webhooks/shapes.ts'
import { readBody } from './body.ts'
import { type ApiDeps, type AsCaller, type Handler, param } from './callers.ts'
import { readResult } from './results.ts'

/**
 * Imitates the APIs of Replicate and fal outside production. Models are `local/<slug>`, and webhooks are signed as
 * these APIs sign them.
 */
export function shapesRouter(deps: ApiDeps, as: AsCaller): Router {
  const router = Router({ caseSensitive: true, strict: true })
  router.post('/replicate/models/:owner/:model/predictions', as(predict(deps), 'generate'))
  router.get(
    '/replicate/predictions/:id',
    as(async (req, res, caller) => void res.json(predictionOf(await jobOf(deps, caller, param(req, 'id'))))),
  )

  const keySet = falKeySetOf(falKeyOf(deps.settings.secretKey))
  router.get('/fal/.well-known/jwks.json', (_req, res) => void res.json(keySet))
  router.get('/fal/:owner/:model/requests/:id/status', as(showFalStatus(deps)))
  router.get('/fal/:owner/:model/requests/:id', as(showFalOutput(deps)))
  router.post('/fal/:owner/:model{/*path}', as(queue(deps), 'generate'))
  return router.use('/replicate', inDetail).use('/fal', inDetail)
}

/** Both APIs describe an error in `detail`. */
const inDetail: ErrorRequestHandler = (error, _req, res, next) => {
  if (!(error instanceof HttpError) || res.headersSent) return next(error)
  res.status(error.status).set(error.headers).json({ detail: error.message })
}

const inputSchema = z.record(z.string(), z.unknown())
const predictionSchema = z.object({ input: inputSchema, webhook: z.string().optional() })

function predict(deps: ApiDeps): Handler {
  return async (req, res, caller, signal) => {
    const { input, webhook } = await readBody(req, res, predictionSchema)
    const body = { input, webhook_url: shaped(webhook, 'replicate') }
    const wanted = { caller, slug: param(req, 'model'), body, idempotencyKey: undefined, signal }
    const { request_id } = await submit(deps, wanted)
    res.status(201).json(predictionOf({ request_id, status: 'IN_QUEUE', model: param(req, 'model') }))
  }
}

function queue(deps: ApiDeps): Handler {
  return async (req, res, caller, signal) => {
    const input = await readBody(req, res, inputSchema)
    const webhook = req.query['fal_webhook']
    const body = { input, webhook_url: shaped(typeof webhook === 'string' ? webhook : undefined, 'fal') }
    const slug = param(req, 'model')
    const submitted = await submit(deps, { caller, slug, body, idempotencyKey: undefined, signal })
    const { request_id, queue_position } = submitted
    const url = `${deps.settings.baseUrl}/fal/${param(req, 'owner')}/${slug}/requests/${request_id}`
    const links = { response_url: url, status_url: `${url}/status`, cancel_url: `${url}/cancel` }
    res.json({ status: 'IN_QUEUE', request_id, gateway_request_id: request_id, ...links, queue_position })
  }
}

const shaped = (webhook: string | undefined, shape: Shape) =>
  webhook === undefined ? undefined : withShape(webhook, shape)

/** 202 until the end. A failed request is COMPLETED too, with its error. */
function showFalStatus(deps: ApiDeps): Handler {
  return async (req, res, caller) => {
    const job = await jobOf(deps, caller, param(req, 'id'))
    if (job.status === 'IN_QUEUE' || job.status === 'IN_PROGRESS')
      return void res.status(202).json({ status: job.status, request_id: job.request_id, queue_position: job.position })
    const type = job.status === 'CANCELED' ? 'client_cancelled' : job.error && 'internal_error'
    const failure = type && { error: job.error?.message ?? 'the request was canceled', error_type: type }
    res.json({ status: 'COMPLETED', request_id: job.request_id, ...failure })
  }
}

function showFalOutput(deps: ApiDeps): Handler {
  return async (req, res, caller) => {
    const job = await jobOf(deps, caller, param(req, 'id'))
    if (job.output !== undefined) return void res.json(job.output)
    if (job.error !== undefined) return void res.status(500).json(falFailure(job.error))
    const detail = job.status === 'CANCELED' ? 'Request was cancelled' : 'Request is still in progress'
    res.status(400).json({ detail })
  }
}

type Job = ShapedJob & { position?: number | null }

async function jobOf(deps: ApiDeps, caller: Parameters<typeof readResult>[1], requestId: string): Promise<Job> {
  const { kind, body } = await readResult(deps, caller, { requestId, withLogs: false })
  return kind === 'running' ? { ...body, position: body.queue_position } : body
}
