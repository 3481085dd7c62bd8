import type { Ffmpeg } from '../../platform/ffmpeg.ts'
import { posterOf } from './poster.ts'

/** As large as a picture may be for us to decode it: more is a bomb, or nothing for a page. */
const maxPixels = 40_000_000
/**
 * What is not decoded row by row takes more for each pixel: measured were 18 bytes of AVIF, 10 of an interlaced PNG
 * (of 16 bits and with alpha), 6 of a progressive JPEG and of a GIF. So none takes more than some 160 MB.
 */
const maxPixelsWhole: Readonly<Record<string, number>> = {
  heif: 9_000_000,
  png: 16_000_000,
  jpeg: 24_000_000,
  gif: 24_000_000,
}
const edgePixels = 320
const withinSeconds = 20
const quality = 80
/** Types that are decoded here; of other pictures there is no thumbnail. */
const decoded = new Set(['image/png', 'image/jpeg', 'image/webp', 'image/gif', 'image/avif'])

export type Thumbnail =
  | { kind: 'made'; bytes: Buffer }
  | { kind: 'none'; why: string }
  | { kind: 'damaged'; why: string }

/** One at a time: decoding takes memory by the pixel. */
let last: Promise<unknown> = Promise.resolve()

export type ThumbnailOptions = {
  /** Posters of videos are made by it; without one, videos have none. */
  ffmpeg?: Ffmpeg | undefined
  signal: AbortSignal
}

/**
 * Makes a small picture of a picture, which is decoded whole for it, or of a video's first frame; undefined for types
 * that get none. `damaged` is a picture whose header promises more than its rows hold.
 */
export async function thumbnailOf(
  file: { path: string; contentType: string },
  { ffmpeg, signal }: ThumbnailOptions,
): Promise<Thumbnail | undefined> {
  const isVideo = file.contentType.startsWith('video/')
  if (isVideo ? ffmpeg === undefined : !decoded.has(file.contentType)) return undefined
  const made = last.then(() => (ffmpeg && isVideo ? ofVideo(file, { ffmpeg, signal }) : ofPicture(file.path)))
  last = made.catch(() => {})
  return made
}

async function ofVideo(
  file: { path: string; contentType: string },
  options: { ffmpeg: Ffmpeg; signal: AbortSignal },
): Promise<Thumbnail> {
  const poster = await posterOf({ ...file, ...options, maxPixels, edgePixels })
  if (poster.kind === 'none') return poster
  const sharp = await loadSharp()
  if (sharp === undefined) return { kind: 'none', why: 'sharp is not installed' }
  const { width, height, pixels } = poster.frame
  const bytes = await sharp(pixels, { raw: { width, height, channels: 3 } })
    .webp({ quality })
    .toBuffer()
  return { kind: 'made', bytes }
}

async function ofPicture(from: string): Promise<Thumbnail> {
  const sharp = await loadSharp()
  if (sharp === undefined) return { kind: 'none', why: 'sharp is not installed' }
  try {
    // Of the header alone: what it says is too much is not decoded.
    const { width, height, format, isProgressive } = await sharp(from, { limitInputPixels: false }).metadata()
    const isWhole = isProgressive || format === 'heif' || format === 'gif'
    if (width * height > (isWhole ? (maxPixelsWhole[format] ?? maxPixels) : maxPixels))
      return { kind: 'none', why: `it has ${width} × ${height} pixels` }
    const picture = sharp(from, { limitInputPixels: maxPixels, failOn: 'truncated', sequentialRead: true })
    const small = picture.autoOrient().resize(edgePixels, edgePixels, { fit: 'inside', withoutEnlargement: true })
    return { kind: 'made', bytes: await small.timeout({ seconds: withinSeconds }).webp({ quality }).toBuffer() }
  } catch (error) {
    const why = error instanceof Error ? error.message.slice(0, 200) : 'it cannot be decoded'
    return /timeout/i.test(why) ? { kind: 'none', why } : { kind: 'damaged', why }
  }
}

/** Where an installation has it: a receiver also runs without. */
async function loadSharp() {
  try {
    return (await import('sharp')).default
  } catch {
    return undefined
  }
}
