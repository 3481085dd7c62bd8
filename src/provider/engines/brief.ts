import { createHash } from 'node:crypto'
import { z } from 'zod'
import { EngineError, type EngineJob } from './engine.ts'

/** The input keys that the local engines and openai-images understand. */
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

/**
 * Reads the input for these engines. The seed of the brief depends on the model, the prompt, the given seed and the
 * bytes of the references. It does not depend on the size, so that another size shows the same picture.
 */
export function readBrief({ model, input, references }: Pick<EngineJob, 'model' | 'input' | 'references'>): Brief {
  const parsed = briefSchema.safeParse(input)
  if (!parsed.success) {
    throw new EngineError(
      `this engine cannot work with the input: ${parsed.error.issues.map(({ path }) => path.join('.')).join(', ')}`,
    )
  }
  const given = references.map(({ field, sha256 }) => [field, sha256])
  const subject = [model, parsed.data.prompt, input['seed'], given]
  return { ...parsed.data, seed: createHash('sha256').update(JSON.stringify(subject)).digest('hex') }
}
