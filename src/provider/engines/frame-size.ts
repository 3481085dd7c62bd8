import type { Brief } from './brief.ts'
import { EngineError } from './engine.ts'

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
