import type { Request as HttpRequest } from 'express'
import { z } from 'zod'
import { environmentOfKey } from '../domain/keys.ts'
import { mustBeStorable } from '../domain/storable.ts'
import type { ReceiverDeps } from '../program.ts'
import { readWithin, writeWithin } from '../queries/deadline.ts'
import { requestListSchema } from '../queries/filters.ts'
import { readRequest, requestDetailSchema } from '../queries/request-detail.ts'
import { findRequest, listRequests, requestSchema, type Request } from '../queries/requests.ts'
import { runOf } from '../reconciling/reconciler.ts'
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
import { trackBodySchema, tracked, trackRequest } from './track.ts'

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
    errors: ['source_mismatch', 'not_storable', 'request_locked'],
    answer: async (req, res) => {
      const body = await readBody(req, res, trackBodySchema)
      mustBeStorable(body)
      const wanted = tracked(body, keys())
      const environment = environmentOfKey(keys(), body.key_name ?? '')
      const created = await writeWithin(trackRequest(db, wanted, { environment, now: time() }))
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
      if (!(await find(id))) throw unknown(req)
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

/** Asks the source to cancel the job, polls the request at once, and records it in the audit log. */
export async function auditedCancel(deps: ReceiverDeps, req: HttpRequest, request: Request) {
  const work = () => deps.cancel(request)
  const detailOf = (outcome: string) => ({ outcome })
  const outcome = await auditedCall(deps, req, { action: 'cancel', target: request.id, detailOf, work })
  await deps.background.reconcileOne(request.id)
  return outcome
}
