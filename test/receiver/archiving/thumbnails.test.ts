import fs from 'node:fs/promises'
import path from 'node:path'
import sharp, { type Sharp } from 'sharp'
import { expect, it, onTestFinished } from 'vitest'
import { thumbnailOf } from '../../../src/receiver/archiving/thumbnails.ts'
import { temporaryFolder } from './media-stand.ts'

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
it.each([
  ['AVIF', 8.8, 'made'],
  ['AVIF', 9.2, 'none'],
  ['interlaced PNG', 15.8, 'made'],
  ['interlaced PNG', 16.2, 'none'],
  ['PNG', 16.2, 'made'],
  ['progressive JPEG', 23.8, 'made'],
  ['progressive JPEG', 24.2, 'none'],
  ['JPEG', 24.2, 'made'],
  ['GIF', 24.2, 'none'],
])('of %s of %d megapixels a thumbnail is %s: what decoding it takes stays small', async (name, megapixels, kind) => {
  const folder = await temporaryFolder()
  onTestFinished(folder.remove)
  const { contentType, as } = kinds[name]!
  const file = path.join(folder.root, 'picture')
  await fs.writeFile(file, await as(blank(megapixels)).toBuffer())
  expect(await thumbnailOf({ path: file, contentType }, new AbortController().signal)).toMatchObject({ kind })
})
