import sharp from 'sharp'
import { EngineError } from './engine.ts'

export type ReceivedPicture = { bytes: Buffer; format: 'png' | 'webp' | 'jpg'; width: number; height: number }

/**
 * Accepts bytes from an image service as a complete PNG, WebP or JPEG, detected by content, with its true size. Refuses
 * anything else, especially SVG and HTML, because stored files are served from our host.
 */
export async function receivePicture(bytes: Buffer): Promise<ReceivedPicture> {
  const format = formatOf(bytes)
  if (format === undefined)
    throw new EngineError('the image service answered with something that is no PNG, WebP or JPEG')
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

function formatOf(bytes: Buffer): ReceivedPicture['format'] | undefined {
  const starts = (text: string, at = 0) => bytes.toString('latin1', at, at + text.length) === text
  if (starts('\x89PNG\r\n\x1a\n')) return 'png'
  if (starts('RIFF') && starts('WEBP', 8)) return 'webp'
  if (starts('\xff\xd8\xff')) return 'jpg'
  return undefined
}
