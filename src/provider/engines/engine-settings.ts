import fs from 'node:fs'
import { z } from 'zod'
import { errorCode } from '../../platform/plain-words.ts'
import type { EngineChoice } from '../domain/engine-choice.ts'

const engineUrl = z
  .url({ protocol: /^https?$/, error: 'must be an http or https URL' })
  .transform((url) => url.replace(/\/+$/, ''))

/** An endpoint that implements the OpenAI images API: `POST {url}/images/generations`. */
export const openAiImagesSchema = z.strictObject({
  url: engineUrl,
  api_key: z.string().min(1).optional(),
  model: z.string().min(1),
  /** How the answer contains the picture. `omit` sends no response_format, for endpoints that refuse the field. */
  response_format: z.enum(['b64_json', 'url', 'omit']).default('b64_json'),
  /** Sizes that the endpoint accepts. The closest shape is ordered. Without `sizes`, the exact size is ordered. */
  sizes: z
    .array(z.string().regex(/^[1-9]\d{1,3}x[1-9]\d{1,3}$/, 'must look like 1024x1024'))
    .min(1)
    .optional(),
  /** Pictures per call. Larger orders are split into several calls. */
  max_images_per_call: z.int().min(1).max(10).default(10),
  /** Deadline of a whole job, with all calls and downloads. Less than the 300 s after which fetch gives up. */
  timeout_seconds: z.number().positive().max(280).default(180),
  /** Size limit of one answer or one downloaded picture. */
  max_answer_bytes: z.int().min(1024).max(268_435_456).default(67_108_864),
})
export type OpenAiImagesSettings = z.infer<typeof openAiImagesSchema>

/** A team's own engine, which implements the protocol of docs/engines.md: `POST {url}`. */
export const httpEngineSchema = z.strictObject({
  url: engineUrl,
  api_key: z.string().min(1).optional(),
  /** Deadline of a whole job with its transfers. Less than the 15 minutes that a generation may take. */
  timeout_seconds: z.number().positive().max(840).default(600),
  /** Pause between two polls of a running job. */
  poll_seconds: z.number().min(0.02).max(30).default(1),
  /** Size limit of all outputs of a job together. Linked outputs are in memory one at a time, others all at once. */
  max_output_bytes: z.int().min(1024).max(268_435_456).default(134_217_728),
})
export type HttpEngineSettings = z.infer<typeof httpEngineSchema>

/** Where a bearer token is read from. The catalog file never contains the token itself. */
const tokenPlace = {
  token_env: z
    .string()
    .regex(/^[A-Za-z_]\w*$/, 'must be the name of an environment variable')
    .optional(),
  token_file: z.string().min(1).optional(),
}

const none = z.strictObject({}).default({})

/** The engines that a model of the catalog can name, with their media types and engine_settings. */
export const engineKinds = {
  'local-image': { types: ['image'], settings: none },
  'local-image-with-original': { types: ['image'], settings: none },
  'local-video': { types: ['video'], settings: none },
  'local-audio': { types: ['audio'], settings: none },
  'openai-images': { types: ['image'], settings: openAiImagesSchema.omit({ api_key: true }).extend(tokenPlace) },
  http: { types: ['image', 'video', 'audio'], settings: httpEngineSchema.omit({ api_key: true }).extend(tokenPlace) },
} as const

/** The value of PROVIDER_ENGINES, parsed from JSON. */
export const engineSettingsSchema = z.strictObject({
  /** An ffmpeg with libx264, used instead of the packaged one. */
  ffmpeg_path: z.string().min(1).optional(),
})

/** Looks a variable up by its name. */
export type ReadVariable = (name: string) => string | undefined

/**
 * Reads the bearer token of an engine from the environment variable or file in its settings. A file is read for each
 * job, so that a new token needs no restart. Throws if the token is missing. The message never quotes the token.
 */
export function readEngineToken(
  { settings }: Pick<EngineChoice, 'settings'>,
  readVariable: ReadVariable = (name) => process.env[name],
): string | undefined {
  const { token_env: variable, token_file: file } = settings
  if (typeof variable === 'string')
    return checked(readVariable(variable), `token_env: the environment variable ${variable}`)
  if (typeof file === 'string') return checked(read(file), `token_file: the file ${file}`)
  return undefined
}

function checked(text: string | undefined, where: string): string {
  const token = text?.trim()
  if (!token) throw new Error(`${where} contains no token: set it`)
  if (!/^[\x21-\x7e]+$/.test(token))
    throw new Error(`${where} contains a token with characters that are invalid in a header: correct it`)
  return token
}

function read(file: string): string {
  try {
    return fs.readFileSync(file, 'utf8')
  } catch (cause) {
    throw new Error(`token_file: the file ${file} cannot be read (${errorCode(cause)})`, { cause })
  }
}
