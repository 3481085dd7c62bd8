import { posterOf } from './poster.ts'

/** As large as a picture may be for us to decode it: more is a bomb, or nothing for a page. */
const maxPixels = 40_000_000
/**
 * What is not decoded row by row takes more for each pixel: measured were 18 bytes of AVIF, 10 of an interlaced PNG
 * (of 16 bits and with alpha), 6 of a progressive JPEG and of a GIF. So none takes more than some 160 MB.
 */
const maxPixelsWhole: Readonly<Record<string, number>> = { heif: 9_000_000, png: 16_000_000, jpeg: 24_000_000, gif: 24_000_000 }
const edgePixels = 320
const withinSeconds = 20
/** Types that are decoded here; of other pictures there is no thumbnail. */
const decoded = new Set(['image/png', 'image/jpeg', 'image/webp', 'image/gif', 'image/avif'])

export type Thumbnail = { kind: 'made'; bytes: Buffer } | { kind: 'none'; why: string } | { kind: 'damaged'; why: string }

/** One at a time: decoding takes memory by the pixel. */
let last: Promise<unknown> = Promise.resolve()

/**
 * A small picture of a picture, which is decoded whole by that, or of the first frame of a video; undefined for what has
 * none. `damaged` is a picture whose header promises what its rows do not keep.
 */
export async function thumbnailOf(file: { path: string; contentType: string }, signal: AbortSignal): Promise<Thumbnail | undefined> {
  const isVideo = file.contentType.startsWith('video/')
  if (!isVideo && !decoded.has(file.contentType)) return undefined
  const made = last.then(() => (isVideo ? ofVideo(file, signal) : ofPicture(file.path)))
  last = made.catch(() => {})
  return made
}

async function ofVideo(file: { path: string; contentType: string }, signal: AbortSignal): Promise<Thumbnail | undefined> {
  const frame = await posterOf({ ...file, maxPixels, edgePixels, signal })
  if (frame === undefined) return undefined
  const small = await ofPicture(frame)
  return small.kind === 'made' ? small : undefined
}

async function ofPicture(from: string | Buffer): Promise<Thumbnail> {
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
    return { kind: 'made', bytes: await small.timeout({ seconds: withinSeconds }).webp({ quality: 80 }).toBuffer() }
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
