import { randomUUID } from 'node:crypto'
import type { Express, Request, Response } from 'express'
import { HttpError } from '../../platform/http/http.ts'
import { fieldsOf, formReader } from '../../platform/pages/form.ts'
import { requestIdSchema } from '../../wire/schemas.ts'
import { type Caller, callerOfKey } from '../accounts/identify.ts'
import { listUsableKeys } from '../accounts/usable-keys.ts'
import type { CatalogModel } from '../catalog/catalog-model.ts'
import * as commands from '../operating/commands.ts'
import { estimateCredits } from '../submit/estimate.ts'
import { readIdempotencyKey } from '../submit/idempotency.ts'
import { submit } from '../submit/submit.ts'
import { auditedHere, type ConsoleDeps } from './actions.ts'
import { defaultTexts, type FieldProblems, inputOf, problemsOf, textsIn, textsOf } from './input-form.ts'
import { type Filled, modelPage, type ModelView } from './model-page.ts'
import type { Show } from './parts.ts'
import { readRequest } from './reads.ts'

/** The same limit as for the body of a submit. */
const readFields = formReader('1mb')

type Outcome = Pick<ModelView, 'problems' | 'problem' | 'requestId'> & { credits?: number }

/** A page for each model. Its form calls the functions of the API's submit and estimate. */
export function showModels(app: Express, deps: ConsoleDeps, show: Show): void {
  const { db } = deps

  const answer = async (req: Request, res: Response, model: CatalogModel, filled: Filled, outcome: Outcome) => {
    const { problems, problem, credits, requestId } = outcome
    const wanted = requestIdSchema.safeParse(filled.keyId).data
    const [models, keys] = await Promise.all([commands.listModels(deps), listUsableKeys(db, wanted)])
    const switches = models.find(({ slug }) => slug === model.slug)
    if (switches === undefined) throw unknown()
    const estimate = credits === undefined ? undefined : { credits, key: keys.find(({ id }) => id === filled.keyId) }
    const view = { model, switches, keys, filled, requestId, problems, problem, estimate }
    show(req, res, model.name, modelPage(view))
  }

  app.get('/models/:slug', async (req, res) => {
    const model = modelOf(deps, req)
    const key = requestIdSchema.safeParse(req.query['key'])
    const values = (await valuesLike(deps, model, req.query['like'])) ?? { texts: defaultTexts(model), webhookUrl: '' }
    const filled = { ...values, keyId: key.data ?? '', idempotencyKey: randomUUID() }
    const requestId = requestIdSchema.safeParse(req.query['request']).data
    await answer(req, res, model, filled, { problems: {}, requestId })
  })

  app.post('/models/:slug/estimate', readFields, async (req, res) => {
    const model = modelOf(deps, req)
    const filled = filledIn(req, model)
    const outcome = await attempt(deps, model, filled, (caller) =>
      estimateCredits(deps.catalog(), { caller, slug: model.slug, input: inputOf(model, filled.texts) }),
    )
    if (outcome.kind === 'refused') return answer(req, res.status(outcome.status), model, filled, outcome)
    return answer(req, res, model, filled, { problems: {}, credits: outcome.value })
  })

  app.post('/models/:slug/run', readFields, async (req, res) => {
    const model = modelOf(deps, req)
    const filled = filledIn(req, model)
    const outcome = await attempt(deps, model, filled, async (caller) => {
      const body = {
        input: inputOf(model, filled.texts),
        ...(filled.webhookUrl !== '' && { webhook_url: filled.webhookUrl }),
      }
      const idempotencyKey = readIdempotencyKey(filled.idempotencyKey)
      const { accountId: target, keyId: key_id } = caller
      const { request_id: id } = await auditedHere(deps, req, {
        action: 'generate',
        target,
        detailOf: ({ request_id, cost }) => ({ request_id, model: model.slug, key_id, cost }),
        work: () => submit(deps, { caller, slug: model.slug, body, idempotencyKey }),
      })
      return id
    })
    if (outcome.kind === 'done') {
      const made = { request: outcome.value, like: outcome.value, key: filled.keyId }
      return res.redirect(303, `/models/${encodeURIComponent(model.slug)}?${new URLSearchParams(made).toString()}`)
    }
    const next = outcome.isUsedUp ? { ...filled, idempotencyKey: randomUUID() } : filled
    return answer(req, res.status(outcome.status), model, next, outcome)
  })
}

type Attempted<T> =
  | { kind: 'done'; value: T }
  /** `isUsedUp`: this form has made a request with other values and needs a new Idempotency-Key. */
  | { kind: 'refused'; status: number; problems: FieldProblems; problem?: string; isUsedUp: boolean }

/** Does the work as the caller of the chosen key. An error of a field is shown at the field. */
async function attempt<T>(
  { db }: ConsoleDeps,
  model: CatalogModel,
  filled: Filled,
  work: (caller: Caller) => T | Promise<T>,
): Promise<Attempted<T>> {
  const refused = (status: number, more: { problems?: FieldProblems; problem?: string }) =>
    ({ kind: 'refused', status, problems: {}, isUsedUp: false, ...more }) as const
  const keyId = requestIdSchema.safeParse(filled.keyId)
  const caller = keyId.success ? await callerOfKey(db, keyId.data) : undefined
  if (caller === undefined)
    return refused(422, { problems: { key: 'this key does not exist or is revoked: choose another' } })
  if (!caller.scopes.includes('generate'))
    return refused(403, { problems: { key: 'this key does not have the scope generate' } })
  const problems = problemsOf(model, inputOf(model, filled.texts))
  if (Object.keys(problems).length > 0) return refused(422, { problems })
  try {
    return { kind: 'done', value: await work(caller) }
  } catch (error) {
    if (!(error instanceof HttpError) || error.status >= 500) throw error
    const { status, code, message } = error
    if (code === 'webhook_url_invalid') return refused(status, { problems: { webhook_url: message } })
    if (code !== 'idempotency_key_reuse') return refused(status, { problem: `${message}.` })
    const problem = 'This form was run before, with other values. Run it again to make another request.'
    return { ...refused(status, { problem }), isUsedUp: true }
  }
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
