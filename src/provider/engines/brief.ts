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

/** Width and height in pixels. */
export type FrameSize = { width: number; height: number }

/** Sizes at 1k: about a megapixel, with the exact ratio. */
const imageSizes: Record<string, FrameSize> = {
  '1:1': { width: 1024, height: 1024 },
  '16:9': { width: 1280, height: 720 },
  '9:16': { width: 720, height: 1280 },
  '4:3': { width: 1152, height: 864 },
  '3:4': { width: 864, height: 1152 },
  '3:2': { width: 1248, height: 832 },
  '2:3': { width: 832, height: 1248 },
  '21:9': { width: 1568, height: 672 },
}

const imageScales: Record<string, number> = { '1k': 1, '2k': 2 }

export function imageSize({ aspect_ratio: ratio = '1:1', resolution = '1k' }: Brief): FrameSize {
  const [size, scale] = [imageSizes[ratio], imageScales[resolution]]
  if (size === undefined || scale === undefined)
    throw new EngineError('this engine has no picture size for that aspect_ratio and resolution')
  return { width: size.width * scale, height: size.height * scale }
}

/**
 * Limits `adaptive` to the widest shape of the catalog, 21:9, in both orientations: the engines draw no narrower
 * strips.
 */
const widestRatio = 21 / 9

/**
 * The size of a clip. `resolution` is the short side. Both sides are even, as H.264 in yuv420p requires. `adaptive`
 * uses the shape of the first reference, or 16:9 without one.
 */
export function videoSize(
  { aspect_ratio = '16:9', resolution = '720p' }: Pick<Brief, 'aspect_ratio' | 'resolution'>,
  reference: FrameSize = { width: 16, height: 9 },
): FrameSize {
  const shape = reference.width / reference.height
  const [, across, down] = /^(\d+):(\d+)$/.exec(aspect_ratio) ?? []
  const ratio =
    aspect_ratio === 'adaptive'
      ? Math.min(Math.max(shape, 1 / widestRatio), widestRatio)
      : Number(across) / Number(down)
  const shortSide = Number(/^(\d+)p$/.exec(resolution)?.[1])
  if (Number.isNaN(ratio) || Number.isNaN(shortSide))
    throw new EngineError('this engine has no frame size for that aspect_ratio and resolution')
  const longSide = 2 * Math.round((shortSide * Math.max(ratio, 1 / ratio)) / 2)
  return ratio >= 1 ? { width: longSide, height: shortSide } : { width: shortSide, height: longSide }
}
