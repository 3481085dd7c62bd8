import { createHash } from 'node:crypto'
import { z } from 'zod'
import { EngineError, type EngineJob } from './engine.ts'

/** The input keys that the local engines understand; others are seeds only. */
const briefSchema = z.object({
  prompt: z.string().default(''),
  aspect_ratio: z.string().optional(),
  resolution: z.string().optional(),
  duration: z.number().min(1).max(60).default(5),
  num_images: z.int().min(1).max(8).default(1),
  output_format: z.enum(['png', 'webp', 'wav', 'mp3']).optional(),
  generate_audio: z.boolean().default(false),
})

export type Brief = z.infer<typeof briefSchema> & { seed: string }

/** These say how a thing is delivered, not what it shows: the same picture in another size stays that picture. */
const deliveryKeys = new Set(['aspect_ratio', 'resolution', 'duration', 'num_images', 'output_format', 'generate_audio'])

/**
 * What is to be made. The seed comes from the model and every key of the input
 * that is not about delivery: a link to a reference changes the picture, though
 * no local engine ever fetches a link that a client gave (it could point into
 * our own network).
 */
export function readBrief({ model, input }: Pick<EngineJob, 'model' | 'input'>): Brief {
  const parsed = briefSchema.safeParse(input)
  if (!parsed.success) {
    throw new EngineError(`this engine cannot work with the input: ${parsed.error.issues.map(({ path }) => path.join('.')).join(', ')}`)
  }
  const subject = Object.entries(input)
    .filter(([key]) => !deliveryKeys.has(key))
    .sort(([a], [b]) => (a < b ? -1 : 1))
  const seed = createHash('sha256')
    .update(JSON.stringify([model, subject]))
    .digest('hex')
  return { ...parsed.data, seed }
}
