import { createHash, randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import sharp from 'sharp'
import { onTestFinished } from 'vitest'
import { contentTypeOf } from '../../../src/platform/media-type.ts'
import type { Reference } from '../../../src/provider/engines/engine.ts'

/** A disc on a ground of another colour: two colours and a shape that nothing else has. */
export function disc({ width = 512, height = 512, ground = '#ffffff', ink = '#e00000' } = {}): Promise<Buffer> {
  const [x, y, radius] = [width / 2, height / 2, Math.min(width, height) * 0.3]
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">
<rect width="100%" height="100%" fill="${ground}"/><circle cx="${x}" cy="${y}" r="${radius}" fill="${ink}"/></svg>`
  return sharp(Buffer.from(svg)).png().toBuffer()
}

/** A file as a job hands it to its engine. */
export async function referenceOf(bytes: Buffer, field = 'image_urls', position = 0): Promise<Reference> {
  const file = path.join(os.tmpdir(), `mediadock-reference-${randomUUID()}`)
  await fs.writeFile(file, bytes)
  onTestFinished(() => fs.rm(file))
  const contentType = contentTypeOf(bytes)
  if (contentType === undefined) throw new Error('not a file that is taken')
  const kind = field.startsWith('image') ? 'image' : field.startsWith('video') ? 'video' : 'audio'
  return { field, position, kind, path: file, contentType, sha256: createHash('sha256').update(bytes).digest('hex') }
}

const edge = 24

/**
 * How alike two pictures are in composition and colours, at most 1: the
 * correlation of their pixels at a size of 24 by 24, above the caption.
 */
export async function likeness(one: Buffer | string, other: Buffer | string): Promise<number> {
  const pixels = async (picture: Buffer | string) => {
    const small = await sharp(picture).removeAlpha().resize(edge, edge, { fit: 'fill' }).raw().toBuffer()
    const seen = small.subarray(0, small.length * 0.6)
    const mean = seen.reduce((sum, value) => sum + value, 0) / seen.length
    return Array.from(seen, (value) => value - mean)
  }
  const [a, b] = await Promise.all([pixels(one), pixels(other)])
  const product = (x: number[], y: number[]) => x.reduce((sum, value, index) => sum + value * (y[index] ?? 0), 0)
  return product(a, b) / Math.sqrt(product(a, a) * product(b, b))
}
