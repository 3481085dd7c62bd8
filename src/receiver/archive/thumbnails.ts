import { decode, type Ffmpeg, maxPixels, readerOf } from '../../platform/ffmpeg.ts'

/** Limits for formats that need more memory per pixel. No decoding takes above 160 MB. */
const maxPixelsWhole: Readonly<Record<string, number>> = {
  heif: 9_000_000,
  png: 16_000_000,
  jpeg: 24_000_000,
  gif: 24_000_000,
}
/** The longer side of a thumbnail: enough to be sharp on a dense screen. */
const edgePixels = 320
/** The image types that are decoded. Others get no thumbnail. */
const decoded = new Set(['image/png', 'image/jpeg', 'image/webp', 'image/gif', 'image/avif'])

export type Thumbnail =
  | { kind: 'made'; bytes: Buffer }
  | { kind: 'none'; why: string }
  | { kind: 'damaged'; why: string }

type Sharp = (typeof import('sharp'))['default']

/** Decodings run one at a time, since their memory grows with the pixels. */
let last: Promise<unknown> = Promise.resolve()

export type ThumbnailOptions = {
  /** Makes posters of videos. Without it videos get none. */
  ffmpeg?: Ffmpeg | undefined
  signal: AbortSignal
}

/** Makes a thumbnail of an image, or of the first frame of a video. Undefined for other types. */
export async function thumbnailOf(
  file: { path: string; contentType: string },
  { ffmpeg, signal }: ThumbnailOptions,
): Promise<Thumbnail | undefined> {
  const isVideo = file.contentType.startsWith('video/')
  if (isVideo ? ffmpeg === undefined : !decoded.has(file.contentType)) return undefined
  const sharp = await import('sharp').then((loaded) => loaded.default).catch(() => undefined)
  if (sharp === undefined) return { kind: 'none', why: 'sharp is not installed' }
  const made = last.then(() =>
    ffmpeg && isVideo ? ofVideo(sharp, file, { ffmpeg, signal }) : ofPicture(sharp, file.path),
  )
  last = made.catch(() => {})
  return made
}

/** The first frame of a video, within limits that leave eight copies their ten minutes. */
async function ofVideo(
  sharp: Sharp,
  { path, contentType }: { path: string; contentType: string },
  { ffmpeg, signal }: { ffmpeg: Ffmpeg; signal: AbortSignal },
): Promise<Thumbnail> {
  const reader = readerOf(contentType)
  if (reader === undefined) return { kind: 'none', why: `no posters are made of ${contentType}` }
  const scale = `scale=w='min(${edgePixels},iw)':h='min(${edgePixels},ih)':force_original_aspect_ratio=decrease`
  const chunks: Buffer[] = []
  try {
    const decoded = await decode(ffmpeg, {
      path,
      reader,
      // PPM is the size as text and the pixels, so that no image decoder reads output shaped by a foreign file.
      args: ['-map', '0:v:0', '-frames:v', '1', '-vf', scale, '-c:v', 'ppm', '-f', 'image2pipe'],
      write: (chunk) => void chunks.push(chunk),
      maxOutputBytes: 3 * edgePixels * edgePixels + 32,
      cpuSeconds: 20,
      wallSeconds: 60,
      signal,
    })
    if (decoded.kind === 'failed') return { kind: 'none', why: `ffmpeg: ${decoded.why.slice(0, 200)}` }
  } catch (error) {
    signal.throwIfAborted()
    return { kind: 'none', why: error instanceof Error ? error.message.slice(0, 200) : 'ffmpeg cannot be run' }
  }
  const bytes = Buffer.concat(chunks)
  const [header = '', width, height] = /^P6\n(\d+) (\d+)\n255\n/.exec(bytes.toString('latin1', 0, 32)) ?? []
  const raw = { width: Number(width), height: Number(height), channels: 3 as const }
  const pixels = bytes.subarray(header.length)
  if (pixels.length !== raw.channels * raw.width * raw.height) return { kind: 'none', why: 'ffmpeg found no frame' }
  return { kind: 'made', bytes: await sharp(pixels, { raw }).webp({ quality: 80 }).toBuffer() }
}

async function ofPicture(sharp: Sharp, from: string): Promise<Thumbnail> {
  try {
    // Reads only the header. Images that are too large are not decoded.
    const { width, height, format, isProgressive } = await sharp(from, { limitInputPixels: false }).metadata()
    const isWhole = isProgressive || format === 'heif' || format === 'gif'
    if (width * height > (isWhole ? (maxPixelsWhole[format] ?? maxPixels) : maxPixels))
      return { kind: 'none', why: `it has ${width} × ${height} pixels` }
    const picture = sharp(from, { limitInputPixels: maxPixels, failOn: 'truncated', sequentialRead: true })
    const small = picture.autoOrient().resize(edgePixels, edgePixels, { fit: 'inside', withoutEnlargement: true })
    return { kind: 'made', bytes: await small.timeout({ seconds: 20 }).webp({ quality: 80 }).toBuffer() }
  } catch (error) {
    const why = error instanceof Error ? error.message.slice(0, 200) : 'the image cannot be decoded'
    return /timeout/i.test(why) ? { kind: 'none', why } : { kind: 'damaged', why }
  }
}
