import fs from 'node:fs/promises'
import path from 'node:path'
import sharp, { type Sharp } from 'sharp'
import { expect, it, onTestFinished } from 'vitest'
import { findFfmpeg } from '../../../src/platform/ffmpeg.ts'
import { thumbnailOf } from '../../../src/receiver/archive/thumbnails.ts'
import { long } from '../../chaos/length.ts'
import { videoOfPng } from '../../platform/support/crafted-media.ts'
import { pngOf, temporaryFolder } from './media-stand.ts'

const { signal } = new AbortController()
const ffmpeg = await findFfmpeg(undefined, signal)
const blank = (megapixels: number) => {
  const edge = Math.floor(Math.sqrt(megapixels * 1_000_000))
  return sharp({ create: { width: edge, height: edge, channels: 3, background: '#c33' } })
}
const kinds: Record<string, { contentType: string; as: (picture: Sharp) => Sharp }> = {
  AVIF: { contentType: 'image/avif', as: (picture) => picture.avif({ effort: 0 }) },
  'interlaced PNG': { contentType: 'image/png', as: (picture) => picture.png({ progressive: true }) },
  PNG: { contentType: 'image/png', as: (picture) => picture.png() },
  'progressive JPEG': { contentType: 'image/jpeg', as: (picture) => picture.jpeg({ progressive: true }) },
  JPEG: { contentType: 'image/jpeg', as: (picture) => picture.jpeg() },
  GIF: { contentType: 'image/gif', as: (picture) => picture.gif({ effort: 1 }) },
}

// 40 megapixels of AVIF are 1,170 bytes, and decoding them took 720 MB.
const limits: [name: string, megapixels: number, kind: string][] = [
  ['AVIF', 9.2, 'none'],
  ['PNG', 16.2, 'made'],
  ['JPEG', 24.2, 'made'],
  ['interlaced PNG', 16.2, 'none'],
  ['GIF', 24.2, 'none'],
  ['progressive JPEG', 24.2, 'none'],
  ['AVIF', 8.8, 'made'],
  ['interlaced PNG', 15.8, 'made'],
  ['progressive JPEG', 23.8, 'made'],
]
it.each(limits.slice(0, long ? undefined : 4))(
  'of %s of %d megapixels a thumbnail is %s: decoding needs little memory',
  async (name, megapixels, kind) => {
    const folder = await temporaryFolder()
    onTestFinished(folder.remove)
    const { contentType, as } = kinds[name]!
    const file = path.join(folder.root, 'picture')
    await fs.writeFile(file, await as(blank(megapixels)).toBuffer())
    expect(await thumbnailOf({ path: file, contentType }, { signal })).toMatchObject({ kind })
  },
)

const video = async (bytes: Buffer) => {
  const folder = await temporaryFolder()
  onTestFinished(folder.remove)
  const file = path.join(folder.root, 'video')
  await fs.writeFile(file, bytes)
  return { path: file, contentType: 'video/mp4' }
}

it.skipIf(!ffmpeg)('of a video the thumbnail is its first frame (skipped where there is no ffmpeg)', async () => {
  const picture = sharp({ create: { width: 640, height: 360, channels: 3, background: '#c33' } })
  const made = await thumbnailOf(await video(videoOfPng(await picture.png().toBuffer())), { ffmpeg, signal })
  const thumbnail = sharp(made?.kind === 'made' ? made.bytes : undefined)
  expect(await thumbnail.metadata()).toMatchObject({ format: 'webp', width: 320, height: 180 })
  const { dominant } = await thumbnail.stats()
  expect(dominant.r).toBeGreaterThan(180)
  expect(dominant.g).toBeLessThan(80)
})

// 700 bytes that claim 80 million frames took 1.9 GB.
it.skipIf(!ffmpeg)('of a video beyond the limits there is none (skipped where there is no ffmpeg)', async () => {
  const bomb = await video(videoOfPng(pngOf(20), 80_000_000))
  expect(await thumbnailOf(bomb, { ffmpeg, signal })).toEqual({ kind: 'none', why: expect.stringMatching(/^ffmpeg: /) })
})

it('of a video there is none without an ffmpeg', async () => {
  expect(await thumbnailOf(await video(videoOfPng(pngOf(20))), { signal })).toBeUndefined()
})
