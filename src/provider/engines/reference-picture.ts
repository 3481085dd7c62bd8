import sharp, { type Sharp } from 'sharp'
import { EngineError, placeOf, type Reference } from './engine.ts'
import type { FrameSize } from './frame-size.ts'

/** Decoded row by row, so that memory does not grow with it. More than any camera's picture is a bomb. */
const maxPixels = 60_000_000
/** An interlaced PNG takes up to 10 bytes a pixel, a progressive JPEG 6: so neither takes more than 240 MB. */
const maxPixelsWhole = 24_000_000
const withinSeconds = 20
/** How soft the ground is on which a picture of another shape lies, as a share of the frame's short side. */
const groundBlurShare = 0.04

/** A picture that somebody else made, and its size as it is shown. Nothing but its header is decoded by this. */
async function openPicture(reference: Reference): Promise<{ picture: Sharp } & FrameSize> {
  const { path } = reference
  try {
    const { width, height, isProgressive, autoOrient } = await sharp(path, { limitInputPixels: false }).metadata()
    if (width * height > (isProgressive ? maxPixelsWhole : maxPixels))
      throw new EngineError(`${placeOf(reference)} has too many pixels`)
    const picture = sharp(path, { limitInputPixels: maxPixels, failOn: 'error', sequentialRead: true }).autoOrient()
    return { picture, width: autoOrient.width, height: autoOrient.height }
  } catch (cause) {
    throw cause instanceof EngineError ? cause : undecodable(reference, cause)
  }
}

/** The size of a reference picture as it is shown. */
export async function pictureSize(reference: Reference): Promise<FrameSize> {
  const { width, height } = await openPicture(reference)
  return { width, height }
}

/** The whole picture in a frame, as a PNG. Where their shapes differ, a soft enlargement of it fills the rest. */
export async function fitPicture(reference: Reference, size: FrameSize): Promise<Buffer> {
  const whole = await decode(reference, (picture) => picture.resize(size.width, size.height, { fit: 'inside' }))
  const { width, height } = await sharp(whole).metadata()
  if (width === size.width && height === size.height) return whole
  const ground = sharp(whole).resize(size.width, size.height, { fit: 'cover' })
  return ground
    .blur(Math.min(size.width, size.height) * groundBlurShare)
    .composite([{ input: whole, gravity: 'centre' }])
    .png({ compressionLevel: 1 })
    .toBuffer()
}

/** The middle of the picture in a frame that it fills, as a PNG. */
export async function fillWithPicture(reference: Reference, size: FrameSize): Promise<Buffer> {
  return decode(reference, (picture) => picture.resize(size.width, size.height, { fit: 'cover' }))
}

/** One at a time: decoding takes memory by the pixel. */
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
      .timeout({ seconds: withinSeconds })
      .png({ compressionLevel: 1 })
      .toBuffer()
  } catch (cause) {
    throw undecodable(reference, cause)
  }
}

export function undecodable(reference: Reference, cause: unknown): EngineError {
  return new EngineError(`${placeOf(reference)} cannot be decoded`, { cause })
}
