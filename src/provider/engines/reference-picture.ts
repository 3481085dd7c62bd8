import sharp, { type Sharp } from 'sharp'
import type { FrameSize } from './brief.ts'
import { EngineError, placeOf, type Reference } from './engine.ts'

/** Most pictures are decoded row by row, so memory does not grow with this. A larger picture is taken for an attack. */
const maxPixels = 60_000_000

/** Opens a foreign picture and returns its displayed size. Decodes only the header. */
async function openPicture(reference: Reference): Promise<{ picture: Sharp } & FrameSize> {
  const { path } = reference
  try {
    const { width, height, isProgressive, autoOrient } = await sharp(path, { limitInputPixels: false }).metadata()
    // An interlaced PNG takes up to 10 bytes per pixel, a progressive JPEG 6, so neither takes more than 240 MB.
    if (width * height > (isProgressive ? 24_000_000 : maxPixels))
      throw new EngineError(`${placeOf(reference)} has too many pixels`)
    const picture = sharp(path, { limitInputPixels: maxPixels, failOn: 'error', sequentialRead: true }).autoOrient()
    return { picture, width: autoOrient.width, height: autoOrient.height }
  } catch (cause) {
    throw cause instanceof EngineError ? cause : undecodable(reference, cause)
  }
}

/** The displayed size of a reference picture. */
export async function pictureSize(reference: Reference): Promise<FrameSize> {
  const { width, height } = await openPicture(reference)
  return { width, height }
}

/** Fits the whole picture into a frame, as a PNG. If the shapes differ, a blurred enlargement fills the rest. */
export async function fitPicture(reference: Reference, size: FrameSize): Promise<Buffer> {
  const whole = await decode(reference, (picture) => picture.resize(size.width, size.height, { fit: 'inside' }))
  const { width, height } = await sharp(whole).metadata()
  if (width === size.width && height === size.height) return whole
  const ground = sharp(whole).resize(size.width, size.height, { fit: 'cover' })
  return ground
    .blur(Math.min(size.width, size.height) * 0.04)
    .composite([{ input: whole, gravity: 'centre' }])
    .png({ compressionLevel: 1 })
    .toBuffer()
}

/** Fills a frame with the middle of the picture, as a PNG. */
export async function fillWithPicture(reference: Reference, size: FrameSize): Promise<Buffer> {
  return decode(reference, (picture) => picture.resize(size.width, size.height, { fit: 'cover' }))
}

/** Decodes one picture at a time, because interlaced and progressive ones take memory per pixel. */
let last: Promise<unknown> = Promise.resolve()

async function decode(reference: Reference, shape: (picture: Sharp) => Sharp): Promise<Buffer> {
  const decoded = last.then(() => decodeNow(reference, shape))
  last = decoded.catch(() => {})
  return decoded
}

async function decodeNow(reference: Reference, shape: (picture: Sharp) => Sharp): Promise<Buffer> {
  const { picture } = await openPicture(reference)
  try {
    return await shape(picture)
      .flatten({ background: '#ffffff' })
      .toColourspace('srgb')
      .timeout({ seconds: 20 })
      .png({ compressionLevel: 1 })
      .toBuffer()
  } catch (cause) {
    throw undecodable(reference, cause)
  }
}

export function undecodable(reference: Reference, cause: unknown): EngineError {
  // sharp's own time limit: the host may be busy and the picture intact.
  if (cause instanceof Error && cause.message.startsWith('timeout:'))
    return new EngineError(`${placeOf(reference)} took too long to decode`, { cause, transient: true })
  return new EngineError(`${placeOf(reference)} cannot be decoded`, { cause })
}
