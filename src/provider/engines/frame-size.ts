/** Width and height in pixels. */
export type FrameSize = { width: number; height: number }

/** At 1k: about a megapixel, and exactly the ratio of the name. */
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

/** The size of a picture, or undefined for a ratio or resolution that no size is known for. */
export function imageSize(aspectRatio = '1:1', resolution = '1k'): FrameSize | undefined {
  const size = imageSizes[aspectRatio]
  const scale = imageScales[resolution]
  if (size === undefined || scale === undefined) return undefined
  return { width: size.width * scale, height: size.height * scale }
}

/**
 * The size of a clip: `resolution` gives the short side. Both sides are even,
 * as H.264 in yuv420p needs. Reference pictures are never fetched, so the shape
 * that `adaptive` would follow is not known and it is 16:9.
 */
export function videoSize(aspectRatio = '16:9', resolution = '720p'): FrameSize | undefined {
  const [, across, down] = /^(\d+):(\d+)$/.exec(aspectRatio === 'adaptive' ? '16:9' : aspectRatio) ?? []
  const [, short] = /^(\d+)p$/.exec(resolution) ?? []
  if (across === undefined || down === undefined || short === undefined) return undefined
  const shortSide = Number(short)
  const longSide = 2 * Math.round((shortSide * Math.max(+across / +down, +down / +across)) / 2)
  return +across >= +down ? { width: longSide, height: shortSide } : { width: shortSide, height: longSide }
}
