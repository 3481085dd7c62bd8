import { randomUUID } from 'node:crypto'
import { withDeadline } from '../../platform/deadline.ts'
import { HttpError } from '../../platform/http/http.ts'
import type { Logger } from '../../platform/logger.ts'
import type { Resolve } from '../../platform/outward/resolver.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import type { SubmitBody, Submitted } from '../../wire/schemas.ts'
import type { Caller } from '../accounts/identify.ts'
import { type Catalog, type CatalogModel, engineOf } from '../catalog/catalog-model.ts'
import { findActiveModel, modelNotFound } from '../catalog/catalog.ts'
import { type Input, validateInput } from '../catalog/input.ts'
import { priceOf } from '../catalog/pricing.ts'
import type { Environment } from '../domain/schema.ts'
import { sandboxOutput } from '../engines/sandbox.ts'
import type { StatusReader } from '../queue/status-reader.ts'
import { checkReferences, type ReferenceRules } from '../references/reference-links.ts'
import type { ProviderSettings } from '../settings.ts'
import { notificationOf } from '../webhooks/notification.ts'
import { checkWebhookUrl } from '../webhooks/webhook-url.ts'
import { fingerprintOf, forgetExpiredKey, recall, rememberPosition } from './idempotency.ts'
import { type Submission, writeSubmission } from './submit-statement.ts'

export type SubmitDeps = {
  catalog: () => Catalog
  db: Database
  settings: Pick<ProviderSettings, 'baseUrl' | 'mediaUrl' | 'mediaDir' | 'webhookAllow' | 'referenceAllow'>
  time: SharedTime
  random: () => number
  resolve: Resolve
  statusReader: StatusReader
  logger: Logger
  /** Wakes this process's worker. */
  onQueued: (environment: Environment) => void
}

export type SubmitRequest = {
  caller: Caller
  slug: string
  body: SubmitBody
  idempotencyKey: string | undefined
  /** Aborts when the caller was answered 503. A statement that was not sent by then is not sent. */
  signal?: AbortSignal
}

/** `POST /v1/models/{model}` (spec, submit). */
export async function submit(deps: SubmitDeps, request: SubmitRequest): Promise<Submitted> {
  const { caller, slug, body, idempotencyKey, signal } = request
  const fingerprint = fingerprintOf(slug, body)
  const idempotency = idempotencyKey === undefined ? undefined : { key: idempotencyKey, fingerprint }
  // A retry gets the answer of the first submit, even if the model was disabled since.
  const earlier = await replay(deps, caller, idempotency)
  if (earlier) return earlier

  const model = findActiveModel(deps.catalog(), caller, slug)
  if (model === undefined) throw modelNotFound(slug)
  const input = checkInput(model, body.input, deps.settings)
  const { webhook_url: given } = body
  const rules = { allow: deps.settings.webhookAllow, resolve: deps.resolve }
  const webhookUrl = given === undefined ? undefined : await checkWebhookUrl(given, rules)

  const submission = await prepare(deps, caller, model, { input, webhookUrl, idempotency })
  const outcome = await writeSubmission(deps.db, submission, deps.time(), signal)
  switch (outcome) {
    case 'accepted':
      return accepted(deps, submission)
    case 'insufficient_credits': {
      const message = `the balance is too low for ${submission.cost} credits`
      throw new HttpError(402, 'insufficient_credits', message, { type: 'billing_error' })
    }
    case 'key_taken': {
      const raced = await replay(deps, caller, idempotency)
      if (raced) return raced
      // Only if the other submit's key has expired since.
      const message = 'the first request with this Idempotency-Key is still being processed'
      throw new HttpError(409, 'request_in_progress', message)
    }
    default:
      return outcome satisfies never
  }
}

/** Reads the position before waking the worker, which would often claim the request first. */
async function accepted(deps: SubmitDeps, submission: Submission): Promise<Submitted> {
  const { requestId, environment, cost } = submission
  if (submission.completed !== undefined) return answer(deps, requestId, { cost, queued: false, position: 0 })
  const position = await withDeadline(
    positionOf(deps, submission),
    // Part of the caller's ten seconds. The request is accepted by then, with or without its position.
    5000,
    'reading the position in the queue',
  ).catch((error: unknown) => {
    // The credits are reserved. An answer without the exact position is better than none.
    deps.logger.warn({ err: error, request_id: requestId }, 'the position of a new request could not be read')
    return 0
  })
  deps.onQueued(environment)
  return answer(deps, requestId, { cost, queued: true, position })
}

async function positionOf(
  { db, statusReader }: SubmitDeps,
  { requestId, accountId, environment, idempotency }: Submission,
): Promise<number> {
  const status = await statusReader({ requestId, accountId, environment, withLogs: false })
  const position = status?.queue_position ?? 0
  if (idempotency) await rememberPosition(db, { accountId, environment, key: idempotency.key }, position)
  return position
}

/** The credits that a submit would reserve for this input (spec, estimate). Throws HttpError 422 for invalid input. */
export function estimateCredits(model: CatalogModel, given: Record<string, unknown>, rules: ReferenceRules): number {
  return Number(priceOf(model, checkInput(model, given, rules)))
}

/** Validates an input and the text of its links (spec, submit rule 2). Submit and estimate refuse the same inputs. */
function checkInput(model: CatalogModel, given: Record<string, unknown>, rules: ReferenceRules): Input {
  const input = validateInput(model, given)
  checkReferences(input, rules)
  return input
}

type Checked = { input: Input; webhookUrl: string | undefined; idempotency: Submission['idempotency'] }

async function prepare(
  deps: SubmitDeps,
  caller: Caller,
  model: CatalogModel,
  { input, webhookUrl, idempotency }: Checked,
): Promise<Submission> {
  const { accountId, keyId, environment } = caller
  const [requestId, cost, engine] = [randomUUID(), priceOf(model, input), engineOf(model)]
  const faults = environment === 'sandbox' ? caller.faults : null
  const ordered = { requestId, accountId, keyId, environment, model: model.slug, input, engine, cost, faults }
  const submission = { ...ordered, webhookUrl, idempotency }
  if (environment === 'live' || runsLikeLive(caller)) return { ...submission, completed: undefined }

  const { mediaDir, mediaUrl } = deps.settings
  const output = await sandboxOutput(engine, { mediaDir, mediaUrl, input })
  const notified = { requestId, model: model.slug, cost, webhook_url: webhookUrl ?? null, faults }
  const delivery = notificationOf(notified, { kind: 'completed', output }, deps.random)
  return { ...submission, completed: { output, delivery } }
}

/**
 * True for a sandbox key with faults that take time or change the end. Its requests go through the queue (decisions,
 * faults on demand).
 */
function runsLikeLive({ faults }: Caller): boolean {
  return Boolean(faults?.failed || faults?.canceled || faults?.slow_seconds)
}

/** Repeats the first answer if this key was accepted before (spec, Idempotency rules). */
async function replay(
  deps: SubmitDeps,
  caller: Caller,
  idempotency: Submission['idempotency'],
): Promise<Submitted | undefined> {
  if (idempotency === undefined) return undefined
  const scope = { accountId: caller.accountId, environment: caller.environment, key: idempotency.key }
  const known = await recall(deps.db, scope, idempotency.fingerprint, deps.time())
  if (known === undefined) return undefined
  if (known.expired) {
    await forgetExpiredKey(deps.db, scope, deps.time())
    return undefined
  }
  if (!known.same)
    throw new HttpError(409, 'idempotency_key_reuse', 'this Idempotency-Key was used with other parameters')
  const { request_id, cost, queued, submitted_position: position } = known
  return answer(deps, request_id, { cost, queued, position: position ?? 0 })
}

function answer(
  { settings }: SubmitDeps,
  requestId: string,
  { cost, queued, position }: { cost: string; queued: boolean; position: number },
) {
  const url = `${settings.baseUrl}/v1/requests/${requestId}`
  return {
    request_id: requestId,
    status: queued ? ('IN_QUEUE' as const) : ('COMPLETED' as const),
    queue_position: position,
    status_url: `${url}/status`,
    response_url: url,
    cancel_url: `${url}/cancel`,
    cost: Number(cost),
  }
}
