import { randomUUID } from 'node:crypto'
import type { Express, Request, Response } from 'express'
import { HttpError } from '../../platform/http/http.ts'
import { fieldsOf, formReader } from '../../platform/pages/form.ts'
import { requestIdSchema } from '../../wire/schemas.ts'
import { type Caller, callerOfKey } from '../accounts/identify.ts'
import { listUsableKeys } from '../accounts/keys.ts'
import type { CatalogModel } from '../catalog/catalog-model.ts'
import { activeModel, defaultsOf } from '../catalog/catalog.ts'
import * as commands from '../operating/commands.ts'
import { readIdempotencyKey } from '../submit/idempotency.ts'
import { estimateCredits, submit } from '../submit/submit.ts'
import { auditedHere, type ConsoleDeps } from './actions.ts'
import { inputOf, textsIn, textsOf } from './input-form.ts'
import { type Filled, modelPage, type ModelView } from './model-page.ts'
import type { Show } from './parts.ts'
import { readRequest } from './reads.ts'

/** The same limit as for the body of a submit. */
const readFields = formReader('1mb')

/** A page for each model. Its form calls the functions of the API's submit and estimate. */
export function showModels(app: Express, deps: ConsoleDeps, show: Show): void {
  const { db } = deps

  type Outcome = Pick<ModelView, 'problem' | 'credits'>
  const answer = async (req: Request, res: Response, model: CatalogModel, filled: Filled, outcome: Outcome = {}) => {
    const wanted = requestIdSchema.safeParse(filled.keyId).data
    const [models, keys] = await Promise.all([commands.listModels(deps), listUsableKeys(db, wanted)])
    const switches = models.find(({ slug }) => slug === model.slug)
    if (switches === undefined) throw unknown()
    show(req, res, model.name, modelPage({ model, switches, keys, filled, ...outcome }))
  }

  /** Shows an expected error above the form. A form that has made a request gets a new Idempotency-Key. */
  const refuse = async (req: Request, res: Response, model: CatalogModel, filled: Filled, error: unknown) => {
    if (!(error instanceof HttpError) || error.status >= 500) throw error
    const isUsedUp = error.code === 'idempotency_key_reuse'
    const problem = isUsedUp
      ? 'This form was run before, with other values. Run it again to make another request.'
      : `${error.message}.`
    const next = isUsedUp ? { ...filled, idempotencyKey: randomUUID() } : filled
    await answer(req, res.status(error.status), model, next, { problem })
  }

  app.get('/models/:slug', async (req, res) => {
    const model = modelOf(deps, req)
    const values = (await valuesLike(deps, model, req.query['like'])) ?? {
      texts: textsOf(defaultsOf(model)),
      webhookUrl: '',
    }
    await answer(req, res, model, {
      ...values,
      keyId: requestIdSchema.safeParse(req.query['key']).data ?? '',
      idempotencyKey: randomUUID(),
    })
  })

  app.post('/models/:slug/estimate', readFields, async (req, res) => {
    const model = modelOf(deps, req)
    const filled = filledIn(req, model)
    try {
      const active = activeModel(deps.catalog(), await callerOf(deps, filled), model.slug)
      const credits = estimateCredits(active, inputOf(model, filled.texts), deps.settings)
      await answer(req, res, model, filled, { credits })
    } catch (error) {
      await refuse(req, res, model, filled, error)
    }
  })

  app.post('/models/:slug/run', readFields, async (req, res) => {
    const model = modelOf(deps, req)
    const filled = filledIn(req, model)
    try {
      const id = await run(deps, req, model, filled)
      res.redirect(303, `/requests/${id}`)
    } catch (error) {
      await refuse(req, res, model, filled, error)
    }
  })
}

/** Submits the form's request and returns its id. */
async function run(deps: ConsoleDeps, req: Request, model: CatalogModel, filled: Filled): Promise<string> {
  const { slug } = model
  const caller = await callerOf(deps, filled)
  const webhook = filled.webhookUrl === '' ? {} : { webhook_url: filled.webhookUrl }
  const body = { input: inputOf(model, filled.texts), ...webhook }
  const idempotencyKey = readIdempotencyKey(filled.idempotencyKey)
  const submitted = await auditedHere(deps, req, {
    action: 'generate',
    target: caller.accountId,
    detailOf: ({ request_id, cost }) => ({ request_id, model: slug, key_id: caller.keyId, cost }),
    work: () => submit(deps, { caller, slug, body, idempotencyKey }),
  })
  return submitted.request_id
}

/** The caller with the chosen key. */
async function callerOf({ db }: ConsoleDeps, { keyId }: Filled): Promise<Caller> {
  const id = requestIdSchema.safeParse(keyId)
  const caller = id.success ? await callerOfKey(db, id.data) : undefined
  if (caller === undefined)
    throw new HttpError(400, 'invalid_form', 'this key does not exist or is revoked: choose another')
  if (!caller.scopes.includes('generate'))
    throw new HttpError(403, 'insufficient_scope', 'this key does not have the scope generate')
  return caller
}

function modelOf({ catalog }: ConsoleDeps, req: Request): CatalogModel {
  const model = catalog().get(String(req.params['slug']))
  if (model === undefined) throw unknown()
  return model
}

function unknown(): HttpError {
  return new HttpError(404, 'not_found', 'there is no such model')
}

function filledIn(req: Request, model: CatalogModel): Filled {
  const fields = fieldsOf(req)
  const { key: keyId = '', webhook_url: webhookUrl = '', idempotency_key: idempotencyKey = randomUUID() } = fields
  return { texts: textsIn(model, fields), keyId, webhookUrl: webhookUrl.trim(), idempotencyKey }
}

/** The values of another request of this model. */
async function valuesLike(
  { db }: ConsoleDeps,
  model: CatalogModel,
  like: unknown,
): Promise<Pick<Filled, 'texts' | 'webhookUrl'> | undefined> {
  const id = requestIdSchema.safeParse(like)
  const request = id.success ? await readRequest(db, id.data) : undefined
  if (request === undefined || request.model !== model.slug) return undefined
  return { texts: textsOf(JSON.parse(request.input)), webhookUrl: request.webhook_url ?? '' }
}
