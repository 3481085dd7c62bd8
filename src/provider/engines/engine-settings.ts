import { z } from 'zod'

/** A team's own engine, which implements the protocol of docs/engines.md: `POST {url}`. */
export const httpEngineSchema = z.strictObject({
  url: z
    .url({ protocol: /^https?$/, error: 'must be an http or https URL' })
    .transform((url) => url.replace(/\/+$/, '')),
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
  http: { types: ['image', 'video', 'audio'], settings: httpEngineSchema.omit({ api_key: true }).extend(tokenPlace) },
} as const

/** The value of PROVIDER_ENGINES, parsed from JSON. */
export const engineSettingsSchema = z.strictObject({
  /** An ffmpeg with libx264, used instead of the packaged one. */
  ffmpeg_path: z.string().min(1).optional(),
})
