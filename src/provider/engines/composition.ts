import sharp from 'sharp'
import type { Reference } from './engine.ts'
import type { FrameSize } from './frame-size.ts'
import { fillWithPicture, fitPicture } from './reference-picture.ts'

/** Size of the inset pictures and of the space around them, as shares of the short side. */
const insetShare = 0.22
const marginShare = 0.03
const frameShare = 0.006

/**
 * Composes pictures in one frame as a PNG. The first one fills the frame, the others are framed insets along the top.
 */
export async function composePictures(
  pictures: readonly [Reference, ...Reference[]],
  size: FrameSize,
): Promise<Buffer> {
  const [first, ...others] = pictures
  const ground = await fitPicture(first, size)
  if (others.length === 0) return ground
  const shortSide = Math.min(size.width, size.height)
  const margin = Math.round(shortSide * marginShare)
  const frame = Math.max(2, Math.round(shortSide * frameShare))
  const room = Math.floor((size.width - margin) / others.length) - margin
  const side = Math.min(Math.round(shortSide * insetShare), room)
  const insets = []
  for (const [at, picture] of others.entries()) {
    const inner = await fillWithPicture(picture, { width: side - 2 * frame, height: side - 2 * frame })
    const border = { top: frame, bottom: frame, left: frame, right: frame, background: '#ffffff' }
    const input = await sharp(inner).extend(border).png({ compressionLevel: 1 }).toBuffer()
    insets.push({ input, left: margin + at * (side + margin), top: margin })
  }
  return sharp(ground).composite(insets).png({ compressionLevel: 1 }).toBuffer()
}
