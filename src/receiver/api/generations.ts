import { randomUUID } from 'node:crypto'
import type { Request } from 'express'
import { z } from 'zod'
import { HttpError } from '../../platform/http/http.ts'
import type { ReceiverDeps } from '../program.ts'
import { parseFilters } from '../queries/filters.ts'
import { mediaSchema } from '../queries/request-detail.ts'
import { findResultWithMedia, resultRowSchema } from '../queries/results.ts'
import { overOf } from '../submitting/generations.ts'
import { generationBodySchema, type ShownGeneration } from '../submitting/submit.ts'
import { exampleValues } from './examples.ts'
import { type FeedWatch, createWaiters } from './feed-watch.ts'
import {
  asHttpError,
  readBody,
  gone,
  jsonBody,
  unknown,
  uuidParam,
  waitSchemaFor,
  type Operation,
} from './operation.ts'

const waitSchema = waitSchemaFor('Seconds to wait until the generation has ended.')

const { idempotency_key, model, input, key_name, metadata } = exampleValues

const instant = z.iso.datetime()
const idempotencyKeySchema = z
  .uuidv4()
  .describe('The same as idempotency_key in the body. If both are given, they must be equal.')

const generationSchema = z
  .object({
    idempotency_key: z.guid(),
    state: z.enum(['pending', 'submitted', 'refused', 'expired']),
    request_id: z.guid().nullable().describe('Null until the provider has assigned one.'),
    status: z.string().nullable().describe('The status of the tracked request.'),
    model: z.string(),
    key_name: z.string(),
    metadata: z.unknown(),
    cost: z.number().nullable(),
    attempts: z.int(),
    next_attempt_at: instant.nullable(),
    last_error: z.string().nullable(),
    answer: z.unknown().describe('The error envelope of a refused or expired submit.'),
    created_at: instant,
  })
  .meta({ id: 'Generation' })

const endedGenerationSchema = generationSchema
  .extend({
    result: resultRowSchema.nullable().describe('The row of `results`; null until there is a request.'),
    media: z.array(mediaSchema),
  })
  .meta({ id: 'GenerationWithResult' })
type EndedGeneration = ShownGeneration & Pick<z.infer<typeof endedGenerationSchema>, 'result' | 'media'>

/** The calls that submit through the receiver: the row is written before the call. */
export function generationOperations(deps: ReceiverDeps, watch: FeedWatch): Operation[] {
  const { db, submitter, logger, signal, awaited } = deps
  const untilOver = createWaiters({ watch, overOf: (keys) => overOf(db, keys), logger, signal })
  const submit: Operation = {
    method: 'post',
    path: '/generations',
    operationId: 'submitGeneration',
    summary: 'Submit a generation with at most one charge',
    description:
      "Passes on the provider's 4xx, except 429 and request_in_progress. Without a final answer, request_id is " +
      'null and mediadock retries in the background. A source that ignores the Idempotency-Key is not called again ' +
      'after a lost answer: a signed webhook ends the submit, or it expires. A refusal after the 202 becomes an ' +
      'item of the feed. Send your own idempotency_key: a caller that sent none and loses this answer can only ' +
      'submit anew, and may be charged twice. After a 503, send the idempotency_key of its message again: the submit ' +
      'may have been stored, and is charged at most once.',
    requestParams: { header: z.object({ 'idempotency-key': idempotencyKeySchema.optional() }) },
    requestBody: jsonBody(generationBodySchema, { idempotency_key, model, input, key_name, metadata }),
    answers: { 202: { description: 'Submitted, or without a final answer yet', schema: generationSchema } },
    errors: ['invalid_idempotency_key', 'idempotency_key_reuse', 'not_storable', 'unknown_key'],
    passesOn4xx: true,
    answer: async (req, res) => {
      const given = await readBody(req, res, generationBodySchema)
      const idempotencyKey = idempotencyKeyOf(req, given.idempotency_key)
      try {
        const { status, body } = await submitter.submit({ ...given, idempotency_key: idempotencyKey })
        res.status(status).json(body)
      } catch (error) {
        throw namingKey(asHttpError(error, logger), idempotencyKey)
      }
    },
  }
  const show: Operation = {
    method: 'get',
    path: '/generations/{idempotency_key}',
    operationId: 'showGeneration',
    summary: 'One submit, with its state',
    description:
      'Includes the result and its media. With `wait`, answers once the result is complete or the submit ' +
      'is refused or expired, or after that many seconds with the present state.',
    requestParams: { path: z.object({ idempotency_key: z.guid() }), query: waitSchema },
    answers: { 200: { description: 'The generation', schema: endedGenerationSchema } },
    errors: ['invalid_filter', 'not_found', 'too_many_waiting'],
    answer: async (req, res) => {
      const { wait = 0 } = parseFilters(waitSchema, req.query)
      const key = uuidParam(req, 'idempotency_key')
      let found = await readGeneration(deps, key)
      if (!found) throw unknown(req)
      if (wait > 0 && !isOver(found)) {
        const noLongerAwaited = found.request_id === null ? () => {} : awaited.add(found.request_id)
        await untilOver(key, { clientGone: gone(res), seconds: wait }).finally(noLongerAwaited)
        if (res.closed) return
        found = (await readGeneration(deps, key)) ?? found
      }
      res.json(found)
    },
  }
  return [submit, show]
}

async function readGeneration({ db, submitter }: ReceiverDeps, key: string): Promise<EndedGeneration | undefined> {
  const generation = await submitter.find(key)
  if (generation === undefined) return undefined
  const ended = generation.request_id === null ? undefined : await findResultWithMedia(db, generation.request_id)
  return { ...generation, result: null, media: [], ...ended }
}

/** Applies the same rule as overOf(). */
function isOver({ state, result }: EndedGeneration): boolean {
  if (state === 'refused' || state === 'expired') return true
  return result !== null && result.landed_at !== null && (result.media_complete || result.status !== 'COMPLETED')
}

/** Adds to a 503 how to repeat the submit, which may have been stored. */
function namingKey(error: unknown, idempotencyKey: string): unknown {
  if (!(error instanceof HttpError) || error.status !== 503) return error
  const message = `${error.message}: send it again with the idempotency_key ${idempotencyKey}, it is charged at most once`
  return new HttpError(503, error.code, message, error)
}

const invalidKey = (message: string) => new HttpError(400, 'invalid_idempotency_key', message)

/** Returns the Idempotency-Key from the body or the header, or a new one. */
function idempotencyKeyOf(req: Request, inBody: string | undefined): string {
  const header = req.get('idempotency-key')
  if (header === undefined) return inBody ?? randomUUID()
  // Node joins repeated headers with a comma, so a repeated key does not parse.
  const parsed = idempotencyKeySchema.safeParse(header)
  if (!parsed.success) throw invalidKey('the header Idempotency-Key must be a uuid of version 4, given once')
  if (inBody !== undefined && inBody.toLowerCase() !== header.toLowerCase())
    throw invalidKey('the header Idempotency-Key and idempotency_key in the body differ: leave one out')
  return header
}
