import sharp from 'sharp'
import { contentTypeOf } from '../../platform/media-type.ts'
import { EngineError } from './engine.ts'
import { mediaTypes } from './media-store.ts'

const formats = ['png', 'webp', 'jpg'] as const
export type ReceivedPicture = { bytes: Buffer; format: (typeof formats)[number]; width: number; height: number }

/**
 * Accepts bytes from an image service as a complete PNG, WebP or JPEG, detected by content, with its true size. Refuses
 * anything else, especially SVG and HTML, because stored files are served from our host.
 */
export async function receivePicture(bytes: Buffer): Promise<ReceivedPicture> {
  const type = contentTypeOf(bytes)
  const format = formats.find((each) => mediaTypes[each] === type)
  if (format === undefined) throw new EngineError('the image service sent a file that is not a PNG, WebP or JPEG')
  try {
    const picture = sharp(bytes, { limitInputPixels: 67_108_864, failOn: 'truncated' })
    const { autoOrient } = await picture.metadata()
    // The header proves little, so this decodes every row.
    await picture.clone().resize(8, 8).raw().toBuffer()
    return { bytes, format, width: autoOrient.width, height: autoOrient.height }
  } catch (cause) {
    throw new EngineError('the image service answered with a damaged picture', { cause, transient: true })
  }
}
