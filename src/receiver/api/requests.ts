import type { Request as HttpRequest } from 'express'
import { z } from 'zod'
import { HttpError } from '../../platform/http/http.ts'
import { invalidBody } from '../../platform/http/json-body.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { toSandbox } from '../domain/environment.ts'
import { environmentOfKey, type Keys } from '../domain/keys.ts'
import { jobIdPattern, requestIdOf } from '../domain/request-id.ts'
import * as schema from '../domain/schema.ts'
import { storedName } from '../domain/source.ts'
import { mustBeStorable } from '../domain/storable.ts'
import type { ReceiverDeps } from '../program.ts'
import { readWithin } from '../queries/deadline.ts'
import { requestListSchema } from '../queries/filters.ts'
import { readRequest, requestDetailSchema } from '../queries/request-detail.ts'
import { findRequest, listRequests, requestSchema, type Request } from '../queries/requests.ts'
import { runOf } from '../reconciling/reconciler.ts'
import { joinTracked, requeueParked, requeueParkedOf, type TrackedBy } from '../submitting/tracking.ts'
import { exampleValues } from './examples.ts'
import {
  auditedCall,
  idPathSchema,
  jsonBody,
  locked,
  unknown,
  uuidParam,
  type Operation,
  readBody,
  filtered,
  onePage,
  shown,
} from './operation.ts'

const { request_id, model, key_name, metadata } = exampleValues

const reconciledSchema = z
  .object({
    scanned: z.int(),
    landed: z.int().describe('1 if the result was new to readers.'),
    running: z.int(),
    not_found: z.int(),
    failed: z.int(),
    postponed: z.int(),
    request: requestSchema,
  })
  .meta({ id: 'Reconciled' })

const cancellationSchema = z
  .object({
    outcome: z.enum(['asked', 'ended']).describe('`ended`: the source had ended the job before.'),
    request: requestSchema,
  })
  .meta({ id: 'Cancellation' })

/** The calls that track requests, list them, poll them and cancel their jobs. */
export function requestOperations(deps: ReceiverDeps): Operation[] {
  const { db, keys, clock, settings, background, time } = deps
  const overdue = () => ({ now: clock(), stuckAfterSeconds: settings.stuckAfterSeconds })
  const find = (id: string) => readWithin(db, (tx) => findRequest(tx, id, overdue()))

  const track: Operation = {
    method: 'post',
    path: '/requests',
    operationId: 'trackRequest',
    summary: 'Track a request that was submitted elsewhere',
    requestBody: jsonBody(trackBodySchema, { request_id, model, key_name, metadata }),
    answers: {
      201: { description: 'Tracked', schema: requestSchema },
      200: {
        description:
          'Known already. Missing values are filled in; the key is corrected unless the provider has confirmed ' +
          'the result.',
        schema: requestSchema,
      },
    },
    errors: ['source_mismatch', 'not_storable'],
    answer: async (req, res) => {
      const body = await readBody(req, res, trackBodySchema)
      mustBeStorable(body)
      const wanted = tracked(body, keys())
      const environment = environmentOfKey(keys(), body.key_name ?? '')
      const created = await trackRequest(db, wanted, { environment, now: time() })
      res.status(created ? 201 : 200).json(await find(wanted.request_id))
    },
  }
  const list = filtered('/requests', {
    operationId: 'listRequests',
    summary: 'Known requests, newest first',
    filters: requestListSchema,
    answer: onePage(requestSchema),
    read: (wanted) => listRequests(deps.db, wanted, overdue()),
  })
  const show = shown('/requests/{id}', {
    operationId: 'showRequest',
    summary: 'One request with its deliveries, arrivals, polls and media as one timeline',
    requestParams: { path: idPathSchema },
    answer: { description: 'The request', schema: requestDetailSchema },
    errors: ['not_found'],
    read: (req) => readRequest(db, uuidParam(req, 'id'), overdue()),
  })
  const reconcile: Operation = {
    method: 'post',
    path: '/requests/{id}/reconcile',
    operationId: 'reconcileRequest',
    summary: "Poll the provider for the request's result now",
    requestParams: { path: idPathSchema },
    answers: { 200: { description: 'The outcome of the poll', schema: reconciledSchema } },
    errors: ['not_found', 'request_locked'],
    answer: async (req, res) => {
      const id = uuidParam(req, 'id')
      const ending = await auditedCall(deps, req, {
        action: 'reconcile',
        target: id,
        detailOf: (of) => of && runOf(of),
        work: () => background.reconcileOne(id),
      })
      const request = await find(id)
      if (!request) throw unknown(req)
      if (!ending) throw locked()
      const { scanned, landed, running, notFound, failed, postponed } = runOf(ending)
      res.json({ scanned, landed, running, not_found: notFound, failed, postponed, request })
    },
  }
  const cancel: Operation = {
    method: 'post',
    path: '/requests/{id}/cancel',
    operationId: 'cancelRequest',
    summary: "Ask the request's source to cancel its job",
    description:
      'The job may still complete. The request is polled at once, and ends with this or a later poll, ' +
      'or with its webhook.',
    requestParams: { path: idPathSchema },
    answers: { 202: { description: 'The request, after the poll', schema: cancellationSchema } },
    errors: ['not_found', 'not_cancelable', 'unknown_key', 'no_call_left', 'provider_unreachable'],
    answer: async (req, res) => {
      const id = uuidParam(req, 'id')
      const before = await find(id)
      if (!before) throw unknown(req)
      const outcome = await auditedCancel(deps, req, before)
      res.status(202).json({ outcome, request: await find(id) })
    },
  }
  return [track, list, show, reconcile, cancel]
}

const requests = columnsOf(schema.requests)
const r = columnsOf(schema.requests, 'r')

/** Asks the source to cancel the job, polls the request at once, and records it in the audit log. */
export async function auditedCancel(deps: ReceiverDeps, req: HttpRequest, request: Request) {
  const work = () => deps.cancel(request)
  const detailOf = (outcome: string) => ({ outcome })
  const outcome = await auditedCall(deps, req, { action: 'cancel', target: request.id, detailOf, work })
  await deps.background.reconcileOne(request.id)
  return outcome
}

const text = z.string().min(1).max(255)

export const trackBodySchema = z.strictObject({
  request_id: z.guid().optional().describe('The id of the request. May be left out where external_id is given.'),
  external_id: z
    .string()
    .regex(jobIdPattern, 'must have 1 to 255 visible ASCII characters, and not begin with a dot')
    .optional()
    .describe('The id that the source gave the job. Only with a key of a source other than the default.'),
  model: text.optional(),
  key_name: text.optional().describe('The key of the submit. Polls use this key first.'),
  metadata: z.record(z.string(), z.unknown()).optional(),
})
export type TrackBody = z.infer<typeof trackBodySchema>

export type Tracked = Pick<TrackBody, 'model' | 'key_name' | 'metadata'> & {
  request_id: string
  external_id?: string | null
  source_name?: string | null
}

/** Completes a request to track with its ids and the source of its key. Throws HttpError 400 invalid_body. */
export function tracked(body: TrackBody, keys: Keys): Tracked {
  const { request_id, external_id } = body
  const key = keys.byName.get(body.key_name ?? '')
  const sourceName = key === undefined ? null : storedName(key.source)
  if (external_id !== undefined && sourceName === null)
    throw invalidBody('external_id: is only for requests with a key_name of a source in SOURCES_FILE')
  const jobId = external_id ?? request_id?.toLowerCase()
  if (jobId === undefined) throw invalidBody('request_id: is missing')
  const ids = requestIdOf(sourceName, jobId)
  if (request_id !== undefined && request_id.toLowerCase() !== ids.requestId)
    throw invalidBody(`request_id: must be ${ids.requestId} for this external_id, or left out`)
  return { ...body, request_id: ids.requestId, external_id: ids.externalId, source_name: sourceName }
}

/**
 * Tracks a request that was submitted elsewhere. Returns true if the request is new here. Throws HttpError 409
 * source_mismatch if it belongs to another source.
 */
export async function trackRequest(db: Database, body: Tracked, { environment, now }: TrackedBy): Promise<boolean> {
  const { request_id, external_id = null, source_name = null, model = null, key_name = null, metadata } = body
  const rows = await db.execute<{ created: boolean | null }>(sql`
    with tracked as (
      insert into mediadock.requests as r
        (${list(requests, 'request_id', 'source_name', 'external_id')},
        ${list(requests, 'model', 'key_name', 'key_source', 'sandbox', 'metadata', 'tracked_at')})
      values (${request_id}::uuid, ${source_name}, ${external_id}, ${model}, ${key_name}, 'tracked',
        ${toSandbox(environment)}::boolean,
        ${metadata === undefined ? null : JSON.stringify(metadata)}::jsonb, ${now})
      on conflict (request_id) ${joinTracked(now)}
      -- xmax is 0 for an inserted row, since it has never been locked or updated.
      returning ${r.request_id}, ${r.confirmed_at} is null as open, xmax = 0 as created
    ),
    ${requeueParked({ environment, now })}
    select (select created from tracked) as created`)
  const { created } = one(rows, `tracking the request ${request_id}`)
  if (created === false) await requeueParkedOf(db, request_id, { environment, now })
  if (created !== null) return created
  throw new HttpError(409, 'source_mismatch', 'this request belongs to another source, and never changes it')
}
