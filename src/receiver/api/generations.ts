import { z } from 'zod'
import type { ReceiverDeps } from '../program.ts'
import { generationBodySchema } from '../submitting/submit.ts'
import { readBody } from './body.ts'
import { jsonBody, responses, unknown, uuidParam, type Operation } from './operation.ts'

const instant = z.iso.datetime()

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
      requestBody: jsonBody(generationBodySchema),
      responses: {
        ...responses({ 202: { description: 'Submitted, or on its way', schema: generationSchema } }, 400, 409, 413, 415, 422),
        '4XX': { description: "The provider's own refusal" },
      },
    },
    answer: async (req, res) => {
      const given = await readBody(req, res, generationBodySchema)
      const { status, body } = await submitter.submit(given)
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
