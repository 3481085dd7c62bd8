import type { Request } from 'express'
import { z } from 'zod'
import { HttpError } from '../../runtime/http/http.ts'
import type { ReceiverDeps } from '../program.ts'
import { generationBodySchema } from '../submitting/submit.ts'
import { readBody } from './body.ts'
import { jsonBody, responses, unknown, uuidParam, type Operation } from './operation.ts'

const instant = z.iso.datetime()
const idempotencyKeySchema = z
  .uuidv4()
  .meta({ description: 'The same as idempotency_key in the body; where both are given they must agree.' })

const generationSchema = z
  .object({
    idempotency_key: z.guid(),
    state: z.enum(['pending', 'submitted', 'refused', 'expired']),
    request_id: z.guid().nullable().meta({ description: 'Null until the provider has given one.' }),
    status: z.string().nullable().meta({ description: 'Of the tracked request.' }),
    model: z.string(),
    key_name: z.string(),
    metadata: z.unknown(),
    cost: z.number().nullable(),
    attempts: z.int(),
    next_attempt_at: instant.nullable(),
    last_error: z.string().nullable(),
    answer: z.unknown().meta({ description: "The provider's envelope, where it refused." }),
    created_at: instant,
  })
  .meta({ id: 'Generation' })

/** Submitting through us: the intent first, then the call. */
export function generationOperations(deps: ReceiverDeps): Operation[] {
  const { submitter } = deps
  const submit: Operation = {
    method: 'post',
    path: '/generations',
    document: {
      operationId: 'submitGeneration',
      summary: 'Submit a generation, safely',
      description:
        "The provider's 4xx are passed on. Where it does not answer, request_id is null and the submit is tried again in the background.",
      requestParams: { header: z.object({ 'idempotency-key': idempotencyKeySchema.optional() }) },
      requestBody: jsonBody(generationBodySchema),
      responses: {
        ...responses({ 202: { description: 'Submitted, or on its way', schema: generationSchema } }, 400, 409, 413, 415, 422),
        '4XX': { description: "The provider's own refusal" },
      },
    },
    answer: async (req, res) => {
      const given = await readBody(req, res, generationBodySchema)
      const { status, body } = await submitter.submit({ ...given, idempotency_key: idempotencyKeyOf(req, given.idempotency_key) })
      res.status(status).json(body)
    },
  }
  const show: Operation = {
    method: 'get',
    path: '/generations/{idempotency_key}',
    document: {
      operationId: 'showGeneration',
      summary: 'What became of a submit',
      requestParams: { path: z.object({ idempotency_key: z.guid() }) },
      responses: responses({ 200: { description: 'The generation', schema: generationSchema } }, 404),
    },
    answer: async (req, res) => {
      const generation = await submitter.find(uuidParam(req, 'idempotency_key'))
      if (!generation) throw unknown(req)
      res.json(generation)
    },
  }
  return [submit, show]
}

/** The Idempotency-Key, which may stand in the body or in the header. */
function idempotencyKeyOf(req: Request, inBody: string | undefined): string | undefined {
  const header = req.get('idempotency-key')
  if (header === undefined) return inBody
  // Two of them arrive as one text with a comma, and are none.
  const parsed = idempotencyKeySchema.safeParse(header)
  if (!parsed.success)
    throw new HttpError(400, 'invalid_idempotency_key', 'the header Idempotency-Key must be a uuid of version 4, given once')
  if (inBody !== undefined && inBody.toLowerCase() !== header.toLowerCase())
    throw new HttpError(400, 'invalid_idempotency_key', 'the header Idempotency-Key and idempotency_key in the body differ: leave one out')
  return header
}
