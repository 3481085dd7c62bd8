import { z } from 'zod'
import { jsonOf } from '../../platform/json-text.ts'
import type { FilesPlace } from '../../platform/settings.ts'
import type { Api, FetchOutcome, Job, SourceKind } from '../domain/source.ts'
import {
  answeredOtherwise,
  canceled,
  outcomeOf,
  readJob,
  refusedHere,
  stateToRead,
  submitJob,
  text,
  type State,
} from './answers.ts'
import { publicKeysOf, verify } from './fal-signature.ts'
import { mediaIn } from './media.ts'
import { idIn } from './signatures.ts'

// fal states no cost and no times.

/** `payload_error`: fal could not write the output into the webhook, so it is fetched. */
const notificationSchema = z
  .object({
    request_id: z.unknown().optional(),
    status: z.unknown().optional(),
    payload: z.unknown().optional(),
    error: z.unknown().optional(),
  })
  .transform(({ request_id: id, ...notification }) => ({ id, ...notification }))

/** The state that the output of a model shows: its media, or the reason for parking an output without media. */
function stateOfOutput(output: unknown, archive: FilesPlace | undefined, model?: string): State {
  const found = mediaIn(output, archive)
  return typeof found === 'string' ? found : { model, status: 'COMPLETED', ...found }
}

const failureSchema = z.object({ error_type: text, detail: z.unknown().optional() })
const detailSchema = z.object({ type: text, msg: text })
type Failure = { error?: unknown; payload?: unknown }

/** A failure: `error_type` with a text in `detail`, or the first of the validation errors in `detail`. */
function stateOfFailure({ error, payload }: Failure, model?: string): State {
  const { error_type, detail } = failureSchema.safeParse(payload).data ?? {}
  const [first] = Array.isArray(detail) ? detail : []
  const { type, msg } = detailSchema.safeParse(first).data ?? {}
  const message = [detail, msg, error].find((cause): cause is string => typeof cause === 'string' && cause !== '')
  if (error_type === 'client_cancelled') return { model, status: 'CANCELED' }
  const stated = { code: error_type ?? type ?? 'error', message: message ?? 'fal reported no cause' }
  return { model, status: 'FAILED', error: stated }
}

const segment = String.raw`(?!\.)[A-Za-z0-9._-]{1,100}`
/** Models of these owners have one segment more. */
const owners = '(?:workflows|comfy)/'
/** A model: its app, as owner/app, with or without a path. */
const modelPattern = new RegExp(`^(${owners}${segment}/${segment}|(?!${owners})${segment}/${segment})(?:/${segment})*$`)

const unknownModel = {
  kind: 'invalid',
  detail: 'calls to fal need the model of the request as owner/app: send it to POST /api/requests',
  isUnsent: true,
} as const

/** The path of a job, with only the app of its model; undefined if that is not known. */
function pathOf({ jobId, model = '' }: Job): string | undefined {
  const [, app] = modelPattern.exec(model) ?? []
  return app === undefined ? undefined : `${app}/requests/${encodeURIComponent(jobId)}`
}

const keyHeader = (apiKey: string) => ({ authorization: `Key ${apiKey}` })
const headersOf = (apiKey: string) => ({ ...keyHeader(apiKey), accept: 'application/json' })

const statusSchema = z.object({ status: z.string(), queue_position: z.int().nonnegative().nullish().catch(null) })
const failedSchema = z.object({ error: z.string().nullish(), error_type: z.string().nullish() })

/** Asks for the status, then for the output. The status of a failed job is COMPLETED with an error. */
async function fetchResult({ jobId, model }: Job, { url, apiKey, call, archive }: Api): Promise<FetchOutcome> {
  const path = pathOf({ jobId, model })
  if (path === undefined) return unknownModel
  const job = `${url}/${path}`
  const headers = headersOf(apiKey)

  const answer = await call({ url: `${job}/status`, headers })
  const json = jsonOf(answer.body)
  const outcome = answeredOtherwise(answer) ?? runningOf(json)
  if (outcome !== undefined) return outcome
  const { error, error_type } = failedSchema.safeParse(json).data ?? {}
  if (typeof error === 'string' || typeof error_type === 'string') {
    const failure = stateOfFailure({ error, payload: { error_type: error_type ?? undefined } }, model)
    return outcomeOf(stateToRead(jobId, failure), jobId)
  }
  const result = await call({ url: job, headers })
  const ended = stateOfOutput(jsonOf(result.body), archive, model)
  return answeredOtherwise(result) ?? outcomeOf(stateToRead(jobId, ended), jobId)
}

function runningOf(json: unknown): FetchOutcome | undefined {
  const { status, queue_position = null } = statusSchema.safeParse(json).data ?? {}
  if (status === 'COMPLETED') return undefined
  if (status === 'IN_QUEUE' || status === 'IN_PROGRESS')
    return { kind: 'running', status: { status, progress: 0, queue_position } }
  return { kind: 'invalid', detail: 'the status is none of IN_QUEUE, IN_PROGRESS and COMPLETED' }
}

export const fal: SourceKind = {
  /** The id of the job. fal sends one webhook for a job, and sends it again under the same id. */
  identify: idIn('X-Fal-Webhook-Request-Id'),
  verify,
  parse: (json, archive) =>
    readJob(json, notificationSchema, ({ status, payload, error }) => {
      if (status === 'ERROR') return stateOfFailure({ payload, error })
      if (status !== 'OK') return 'unknown_status'
      return payload === null || payload === undefined ? 'ENDED' : stateOfOutput(payload, archive)
    }),
  fetchResult,
  submit: async ({ model, input, webhookUrl }, api) => {
    if (!modelPattern.test(model)) return refusedHere('the model must be owner/app, with or without a path')
    const path = `/${model}?fal_webhook=${encodeURIComponent(webhookUrl)}`
    return submitJob({ path, body: input, member: 'request_id', keyHeader }, api)
  },
  /** `PUT …/cancel`, below owner and app. fal takes it before and during the run. */
  cancel: async (job, { url, apiKey, call }) => {
    const path = pathOf(job)
    if (path === undefined) return unknownModel
    const answer = await call({ url: `${url}/${path}/cancel`, method: 'PUT', headers: headersOf(apiKey) })
    const { status } = statusSchema.safeParse(jsonOf(answer.body)).data ?? {}
    return answer.status === 400 && status === 'ALREADY_COMPLETED' ? { kind: 'ended' } : canceled(answer)
  },
  signatureHeaders: ['x-fal-webhook-signature'],
  signed: true,
  keySet: { url: 'https://rest.fal.ai/.well-known/jwks.json', keysIn: publicKeysOf },
  apiUrl: 'https://queue.fal.run',
}
