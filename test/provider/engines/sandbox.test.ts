import fs from 'node:fs/promises'
import sharp from 'sharp'
import { describe, expect, it } from 'vitest'
import { sandboxOutput } from '../../../src/provider/engines/sandbox.ts'
import { outputSchema } from '../../../src/wire/schemas.ts'
import { audioOf, fileOf, filesBelow, imagesOf, mediaUrl, temporaryFolder, videoOf } from './engine-run.ts'
import { probe } from './probe.ts'

const [image, video, audio] = [
  { type: 'image', name: 'local-image' },
  { type: 'video', name: 'local-video' },
  { type: 'audio', name: 'local-audio' },
] as const

async function place(input: Record<string, unknown> = {}) {
  return { mediaDir: await temporaryFolder(), mediaUrl, input }
}

describe('sandboxOutput', () => {
  it('returns the same sample for every request', async () => {
    const first = await sandboxOutput(image, await place({ prompt: 'a' }))
    const second = await sandboxOutput(image, await place({ prompt: 'b', aspect_ratio: '16:9' }))
    expect(second).toEqual(first)
    expect(imagesOf(outputSchema.parse(first))).toHaveLength(1)
  })

  it('returns as many different images as requested, of the stated size', async () => {
    const where = await place({ num_images: 4 })
    const images = imagesOf(await sandboxOutput({ type: 'image', name: 'local-image-with-original' }, where))
    expect(new Set(images.map(({ url }) => url)).size).toBe(4)
    for (const { url, width, height, original_url: original } of images) {
      expect(await sharp(fileOf(where.mediaDir, url)).metadata()).toMatchObject({ format: 'webp', width, height })
      expect(original).toBeDefined()
    }
  })

  it('has no original_url for a model without originals', async () => {
    const [sample] = imagesOf(await sandboxOutput(image, await place()))
    expect(sample).not.toHaveProperty('original_url')
  })

  it('returns a video and a sound of the stated length', async () => {
    const where = await place()
    const clip = videoOf(await sandboxOutput(video, where))
    const probed = await probe(fileOf(where.mediaDir, clip.url))
    expect(probed).toMatchObject({ width: clip.width, height: clip.height })
    expect(Math.abs(probed.seconds - clip.duration)).toBeLessThan(0.06)
    const piece = audioOf(await sandboxOutput(audio, where))
    const sound = await probe(fileOf(where.mediaDir, piece.url))
    expect(Math.abs(sound.seconds - (piece.duration ?? 0))).toBeLessThan(0.06)
  })

  it('writes each file once and completely under concurrent calls', async () => {
    const where = await place()
    const outputs = await Promise.all(Array.from({ length: 20 }, () => sandboxOutput(video, where)))
    const [file = ''] = await filesBelow(where.mediaDir)
    expect(await filesBelow(where.mediaDir)).toHaveLength(1)
    expect(new Set(outputs.map((output) => videoOf(output).url))).toEqual(new Set([`${mediaUrl}/${file}`]))
    const { ino } = await fs.stat(`${where.mediaDir}/${file}`)
    await sandboxOutput(video, where)
    expect((await fs.stat(`${where.mediaDir}/${file}`)).ino).toBe(ino)
  })
})
