import sharp from 'sharp'
import { drawPicture, drawVeil } from './artwork/picture.ts'
import { type FrameSize, imageSize, readBrief } from './brief.ts'
import type { Engine, Reference } from './engine.ts'
import { storeMedia } from './media-store.ts'
import { encodePicture, pngOf, rasterize } from './rasterize.ts'
import { fillWithPicture, fitPicture } from './reference-picture.ts'

/**
 * Creates the engine that draws pictures from the prompt. The same job gives the same bytes. Reference pictures
 * are composed, and the drawing covers them as a veil. With `withOriginal`, each picture also has a lossless
 * PNG as its original_url.
 */
export function createLocalImageEngine({ withOriginal }: { withOriginal: boolean }): Engine {
  return async (job, report, signal) => {
    const brief = readBrief(job)
    const { num_images: count, prompt, strength } = brief
    const size = imageSize(brief)
    const shape = `${size.width}x${size.height}`
    const format = brief.output_format === 'webp' ? 'webp' : 'png'
    await report(0, `drawing ${count} of ${shape}`)
    const [first, ...others] = job.references.filter(({ kind }) => kind === 'image')
    const ground = first && (await composePictures([first, ...others], size))

    const images = []
    for (let number = 1; number <= count; number += 1) {
      const caption = { prompt, credit: `${job.model}  ${shape}  ${number}/${count}` }
      const seed = `${brief.seed}:${number - 1}`
      const picture = ground
        ? sharp(ground).composite([{ input: await pngOf(drawVeil(size, seed, { strength, caption }), signal) }])
        : await rasterize(drawPicture(size, seed, caption), signal)
      const store = async (name: string, as: 'png' | 'webp') =>
        storeMedia(job, `${name}-${number - 1}`, as, await encodePicture(picture.clone(), as))
      const url = await store('image', format)
      images.push({ url, ...size, ...(withOriginal && { original_url: await store('original', 'png') }) })
      await report(Math.round((number / count) * 100), `picture ${number} of ${count} is done`)
    }
    return { images }
  }
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
