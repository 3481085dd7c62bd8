import { z } from 'zod'
import type { SourceKind } from '../domain/source.ts'
import { fetchJob, readJob, refusedHere, submitJob, text } from './answers.ts'
import { mediaOf, outputOf } from './media.ts'
import { identify, secrets, verify } from './standard-webhooks.ts'

const eventSchema = z
  .object({ type: z.unknown().optional(), data: z.object({ id: z.unknown().optional() }) })
  .transform(({ type, data }) => ({ id: data.id, type }))

const errorSchema = z.object({ code: z.number().optional().catch(undefined), message: text })
const responseSchema = z.object({
  generateVideoResponse: z.object({
    generatedSamples: z.array(z.object({ video: z.object({ uri: z.unknown().optional() }) })).optional(),
    raiMediaFilteredReasons: z.array(z.string()).optional().catch(undefined),
  }),
})
const operationSchema = z
  .object({
    name: z.unknown().optional(),
    done: z.boolean().default(false),
    error: errorSchema.optional(),
    response: responseSchema.optional(),
  })
  .transform(({ name, ...operation }) => ({ id: name, ...operation }))

/** Reads an operation, which does not name its model. */
function read(json: unknown, model: string | undefined) {
  return readJob(json, operationSchema, ({ done, error, response }) => {
    if (!done) return 'IN_PROGRESS'
    const failed = (code: string, message: string) => ({ model, status: 'FAILED', error: { code, message } }) as const
    if (error !== undefined) return failed(String(error.code ?? 'error'), error.message ?? 'Gemini reported no cause')
    if (response === undefined) return 'unknown_shape'
    const { generatedSamples = [], raiMediaFilteredReasons: [reason] = [] } = response.generateVideoResponse
    if (generatedSamples.length === 0) return failed('filtered', reason ?? 'Gemini returned no video, and no reason')
    const links = generatedSamples.map(({ video }) => video.uri)
    const media = mediaOf('video', links)
    return media === undefined ? 'unknown_shape' : { model, status: 'COMPLETED', output: outputOf(media), media }
  })
}

const keyHeader = (apiKey: string) => ({ 'x-goog-api-key': apiKey })

/** The name of an operation: a path such as `models/veo/operations/abc`. */
const namePattern = /^(?!\.)[A-Za-z0-9._-]+(?:\/(?!\.)[A-Za-z0-9._-]+)+$/
const modelPattern = /^(?!\.)[A-Za-z0-9._-]{1,100}$/

/** Videos of the Gemini API, with the webhooks of a project, which are signed with Standard Webhooks. */
export const gemini: SourceKind = {
  identify,
  verify,
  /** A webhook lacks the link of the video, so it is a reason to poll. A failed video has no event. */
  parse: (json) => readJob(json, eventSchema, ({ type }) => (type === 'video.generated' ? 'ENDED' : 'unknown_status')),
  fetchResult: async ({ jobId, model }, api) =>
    namePattern.test(jobId)
      ? fetchJob({ path: `/v1beta/${jobId}`, jobId, read: (json) => read(json, model), keyHeader }, api)
      : { kind: 'invalid', detail: 'the id is not the name of an operation' },
  /** The webhook is a setting of the project, so the submit names none. */
  submit: async ({ model, input }, api) =>
    modelPattern.test(model)
      ? submitJob({ path: `/v1beta/models/${model}:predictLongRunning`, body: input, member: 'name', keyHeader }, api)
      : refusedHere('the model must be a name without a path'),
  signatureHeaders: ['webhook-signature'],
  signed: true,
  secrets,
  apiUrl: 'https://generativelanguage.googleapis.com',
  linkHeaders: keyHeader,
  linkLifeSeconds: 2 * 86_400,
}
