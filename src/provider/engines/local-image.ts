import sharp, { type Sharp } from 'sharp'
import type { Output } from '../../wire/schemas.ts'
import { drawPicture, drawVeil } from './artwork/picture.ts'
import { readBrief } from './brief.ts'
import { EngineError, type Engine, type EngineJob, type Report, type Reference } from './engine.ts'
import { imageSize, type FrameSize } from './frame-size.ts'
import { storeMedia } from './media-store.ts'
import { encodePicture, rasterize } from './rasterize.ts'
import { fillWithPicture, fitPicture } from './reference-picture.ts'

/**
 * Creates the engine that draws pictures from the prompt. The same job gives the same bytes. Reference pictures
 * are composed, and the drawing covers them as a veil. With `withOriginal`, each picture also has a lossless
 * PNG as its original_url.
 */
export function createLocalImageEngine({ name, withOriginal }: { name: string; withOriginal: boolean }): Engine {
  return { name, run: (job, report, signal) => runLocalImage(job, { withOriginal, report, signal }) }
}

async function runLocalImage(
  job: EngineJob,
  { withOriginal, report, signal }: { withOriginal: boolean; report: Report; signal: AbortSignal },
): Promise<Output> {
  const brief = readBrief(job)
  const size = imageSize(brief.aspect_ratio, brief.resolution)
  if (size === undefined) throw new EngineError('this engine has no picture size for that aspect_ratio and resolution')
  const format = brief.output_format === 'webp' ? 'webp' : 'png'
  await report(0, `drawing ${brief.num_images} of ${size.width}x${size.height}`)
  const [first, ...others] = job.references.filter(({ kind }) => kind === 'image')
  const ground = first && (await composePictures([first, ...others], size))

  const images = []
  for (let index = 0; index < brief.num_images; index++) {
    const caption = {
      prompt: brief.prompt,
      credit: `${job.model}  ${size.width}x${size.height}  ${index + 1}/${brief.num_images}`,
    }
    const seed = `${brief.seed}:${index}`
    const picture = ground
      ? await layOver(ground, await rasterize(drawVeil(size, seed, { strength: brief.strength, caption }), signal))
      : await rasterize(drawPicture(size, seed, caption), signal)
    const encoded = await encodePicture(picture.clone(), format)
    const url = await storeMedia(job, `image-${index}`, format, encoded)
    const original = withOriginal
      ? { original_url: await storeMedia(job, `original-${index}`, 'png', await encodePicture(picture.clone(), 'png')) }
      : {}
    images.push({ url, ...size, ...original })
    await report(
      Math.round(((index + 1) / brief.num_images) * 100),
      `picture ${index + 1} of ${brief.num_images} is done`,
    )
  }
  return { images }
}

async function layOver(ground: Buffer, veil: Sharp): Promise<Sharp> {
  return sharp(ground).composite([{ input: await veil.png({ compressionLevel: 1 }).toBuffer() }])
}

/**
 * Composes pictures in one frame as a PNG. The first one fills the frame, the others are framed insets along the top.
 */
async function composePictures(pictures: readonly [Reference, ...Reference[]], size: FrameSize): Promise<Buffer> {
  const [first, ...others] = pictures
  const ground = await fitPicture(first, size)
  if (others.length === 0) return ground
  const shortSide = Math.min(size.width, size.height)
  const margin = Math.round(shortSide * 0.03)
  const frame = Math.max(2, Math.round(shortSide * 0.006))
  const room = Math.floor((size.width - margin) / others.length) - margin
  const side = Math.min(Math.round(shortSide * 0.22), room)
  const insets = []
  for (const [at, picture] of others.entries()) {
    const inner = await fillWithPicture(picture, { width: side - 2 * frame, height: side - 2 * frame })
    const border = { top: frame, bottom: frame, left: frame, right: frame, background: '#ffffff' }
    const input = await sharp(inner).extend(border).png({ compressionLevel: 1 }).toBuffer()
    insets.push({ input, left: margin + at * (side + margin), top: margin })
  }
  return sharp(ground).composite(insets).png({ compressionLevel: 1 }).toBuffer()
}
