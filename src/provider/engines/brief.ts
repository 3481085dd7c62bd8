import { createHash } from 'node:crypto'
import { z } from 'zod'
import { EngineError, type EngineJob } from './engine.ts'

/** The input keys that the local engines understand. Other keys only affect the seed. */
const briefSchema = z.object({
  prompt: z.string().default(''),
  aspect_ratio: z.string().optional(),
  resolution: z.string().optional(),
  duration: z.number().min(1).max(60).default(5),
  num_images: z.int().min(1).max(8).default(1),
  output_format: z.enum(['png', 'webp', 'wav', 'mp3']).optional(),
  generate_audio: z.boolean().default(false),
  strength: z.number().min(0).max(1).default(0.5),
})

export type Brief = z.infer<typeof briefSchema> & { seed: string }

/** True for links to references. The seed depends on the bytes behind them instead. */
const isReferenceKey = (key: string) => /^(?:image|video|audio)_urls?$/.test(key)

/** Keys about delivery, not content. The same picture in another size stays the same picture. */
const deliveryKeys = new Set([
  'aspect_ratio',
  'resolution',
  'duration',
  'num_images',
  'output_format',
  'generate_audio',
])

/**
 * Reads the input for the local engines. The seed depends on the model, the bytes of the references, and every input
 * key that is not about delivery. The same reference under another link gives the same picture.
 */
export function readBrief({ model, input, references }: Pick<EngineJob, 'model' | 'input' | 'references'>): Brief {
  const parsed = briefSchema.safeParse(input)
  if (!parsed.success) {
    throw new EngineError(
      `this engine cannot work with the input: ${parsed.error.issues.map(({ path }) => path.join('.')).join(', ')}`,
    )
  }
  const subject = Object.entries(input)
    .filter(([key]) => !deliveryKeys.has(key) && !isReferenceKey(key))
    .sort(([a], [b]) => (a < b ? -1 : 1))
  const given = references.map(({ field, sha256 }) => [field, sha256])
  const seed = createHash('sha256')
    .update(JSON.stringify(given.length > 0 ? [model, subject, given] : [model, subject]))
    .digest('hex')
  return { ...parsed.data, seed }
}
