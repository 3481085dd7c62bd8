import sharp from 'sharp'
import { expect } from 'vitest'
import { builtInCatalog } from '../../../src/provider/catalog/catalog-file.ts'
import type { Reference } from '../../../src/provider/engines/engine.ts'
import { encodeWav } from '../../../src/provider/engines/music.ts'
import { createEngines } from '../../../src/provider/engines/registry.ts'
import { fileOf, filesBelow, runEngine, videoOf } from './engine-run.ts'
import { ffmpegOutput } from './probe.ts'

/** The clip that an engine makes of references. */
export async function film(
  references: Reference[],
  input: Record<string, unknown> = {},
  slug = 'meridian-text-to-video',
) {
  const model = builtInCatalog().get(slug) ?? expect.fail('no such model')
  const engine = createEngines().get(model.engine) ?? expect.fail('no such engine')
  const whole = { prompt: 'a quiet bay', duration: 4, resolution: '480p', aspect_ratio: '16:9', ...input }
  const { output, mediaDir } = await runEngine(engine, { model: slug, input: whole, references })
  const file = fileOf(mediaDir, videoOf(output).url)
  expect(await filesBelow(mediaDir)).toHaveLength(1)
  return { file, ...videoOf(output) }
}

/** A clip of plain colours, each shown for its seconds. */
export function colours(
  parts: readonly (readonly [colour: string, seconds: number])[],
  size = '320x180',
): Promise<Buffer> {
  const inputs = parts.flatMap(([colour, seconds]) => [
    '-f',
    'lavfi',
    '-i',
    `color=c=${colour}:s=${size}:r=25:d=${seconds}`,
  ])
  const encoded = ['-c:v', 'libx264', '-pix_fmt', 'yuv420p', '-f', 'mp4', '-movflags', 'frag_keyframe+empty_moov']
  return ffmpegOutput([...inputs, '-filter_complex', `concat=n=${parts.length}`, ...encoded])
}

/** The main colour of a frame above its caption, by the strongest of red, green and blue. */
export async function colourOf(frame: Buffer): Promise<string> {
  const { width = 1, height = 1 } = await sharp(frame).metadata()
  const { channels } = await sharp(
    await sharp(frame)
      .extract({ left: Math.round(width / 3), top: Math.round(height / 4), width: 60, height: 60 })
      .toBuffer(),
  ).stats()
  const means = channels.slice(0, 3).map(({ mean }) => mean)
  return ['red', 'green', 'blue'][means.indexOf(Math.max(...means))] ?? ''
}

export function tone(hertz: number, seconds: number): Buffer {
  const pcm = Buffer.alloc(44_100 * seconds * 4)
  for (let at = 0; at < pcm.length; at += 2)
    pcm.writeInt16LE(Math.round(16_384 * Math.sin((2 * Math.PI * hertz * Math.floor(at / 4)) / 44_100)), at)
  return encodeWav(pcm)
}
