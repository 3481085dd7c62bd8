import { describe, expect, it } from 'vitest'
import { readBrief } from '../../../src/provider/engines/brief.ts'
import type { Reference } from '../../../src/provider/engines/engine.ts'

const seedOf = (input: Record<string, unknown>, model = 'a-model', references: Reference[] = []) =>
  readBrief({ model, input, references }).seed

const pictureOf = (sha256: string): Reference => ({
  field: 'image_urls',
  position: 0,
  kind: 'image',
  path: '/tmp/1',
  contentType: 'image/png',
  sha256,
})

describe('readBrief', () => {
  it('derives the same seed for the same subject, regardless of output format', () => {
    const delivered = {
      aspect_ratio: '9:16',
      resolution: '2k',
      duration: 8,
      num_images: 4,
      output_format: 'webp',
      generate_audio: true,
    }
    expect(seedOf({ prompt: 'a', ...delivered })).toBe(seedOf({ prompt: 'a' }))
  })

  it('derives another seed for another model, prompt, seed or reference', () => {
    const seeds = [
      seedOf({ prompt: 'a' }),
      seedOf({ prompt: 'a' }, 'another-model'),
      seedOf({ prompt: 'b' }),
      seedOf({ prompt: 'a', seed: 1 }),
      seedOf({ prompt: 'a' }, 'a-model', [pictureOf('1')]),
      seedOf({ prompt: 'a' }, 'a-model', [pictureOf('2')]),
      seedOf({ prompt: 'a' }, 'a-model', [pictureOf('1'), pictureOf('2')]),
    ]
    expect(new Set(seeds).size).toBe(seeds.length)
  })

  it('derives the same seed for the same reference under another link', () => {
    const seeds = ['1.png', '2.png'].map((name) =>
      seedOf({ prompt: 'a', image_urls: [`https://a.example/${name}`] }, 'a-model', [pictureOf('1')]),
    )
    expect(seeds[0]).toBe(seeds[1])
  })
})
