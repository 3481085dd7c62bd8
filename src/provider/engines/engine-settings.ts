import { z } from 'zod'
import { catalog } from '../catalog/catalog-data.ts'
import type { CatalogModel } from '../catalog/catalog-model.ts'

/** The type of model that each engine can run. Those that are local need no settings. */
const madeBy: Record<string, string> = {
  'local-image': 'image',
  'local-image-with-original': 'image',
  'local-video': 'video',
  'local-audio': 'audio',
  'openai-images': 'image',
}

/** An endpoint of the OpenAI images shape: `POST {url}/images/generations`. */
export const openAiImagesSchema = z.strictObject({
  url: z
    .url({ protocol: /^https?$/, error: 'must be an http or https URL' })
    .transform((url) => url.replace(/\/+$/, '')),
  api_key: z.string().min(1).optional(),
  model: z.string().min(1),
  /** How the answer carries the picture; `omit` sends no response_format, for endpoints that refuse the key. */
  response_format: z.enum(['b64_json', 'url', 'omit']).default('b64_json'),
  /** Sizes that the endpoint accepts; the one nearest in shape is ordered. Without it, the exact size is. */
  sizes: z
    .array(z.string().regex(/^[1-9]\d{1,3}x[1-9]\d{1,3}$/, 'must look like 1024x1024'))
    .min(1)
    .optional(),
  /** Most pictures that one call may order; more take several calls. */
  max_images_per_call: z.int().min(1).max(10).default(10),
  /** Deadline of a whole request, every call and download included; below the 300 s after which fetch gives up by itself. */
  timeout_seconds: z.number().positive().max(280).default(180),
  /** Most bytes of one answer or one downloaded picture. */
  max_answer_bytes: z.int().min(1024).max(268_435_456).default(67_108_864),
})
export type OpenAiImagesSettings = z.infer<typeof openAiImagesSchema>

/**
 * The value of PROVIDER_ENGINES, parsed from JSON:
 * `{"openai-images":{"url","api_key","model"},"models":{"aurora-image":"openai-images"},"ffmpeg_path":"…"}`.
 */
export const engineSettingsSchema = z
  .strictObject({
    'openai-images': openAiImagesSchema.optional(),
    /** Binds models to other engines than the catalog's, by slug. */
    models: z.record(z.string(), z.string()).default({}),
    /** An ffmpeg with libx264 instead of the one that came with the package. */
    ffmpeg_path: z.string().min(1).optional(),
  })
  .superRefine((settings, context) => {
    const configured = Object.keys(madeBy).filter((engine) => engine.startsWith('local-') || engine in settings)
    for (const [slug, engine] of Object.entries(settings.models)) {
      const problem = bindingProblem(slug, engine, configured)
      if (problem) context.addIssue({ code: 'custom', path: ['models', slug], message: `models.${slug}: ${problem}` })
    }
  })
export type EngineSettings = z.infer<typeof engineSettingsSchema>

function bindingProblem(slug: string, engine: string, configured: readonly string[]): string | undefined {
  const model = catalog.find((entry) => entry.slug === slug)
  if (model === undefined) return 'there is no such model in the catalog'
  if (!configured.includes(engine)) return `the engine ${engine} is not configured; there are ${configured.join(', ')}`
  if (madeBy[engine] !== model.type) return `the engine ${engine} makes no ${model.type}`
  return undefined
}

/** The name of the engine that runs a model: the bound one, or the catalog's. */
export function engineNameOf(
  { slug, engine }: Pick<CatalogModel, 'slug' | 'engine'>,
  settings?: EngineSettings,
): string {
  return settings?.models[slug] ?? engine
}
