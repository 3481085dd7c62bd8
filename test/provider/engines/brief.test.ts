import { describe, expect, it } from 'vitest'
import { readBrief } from '../../../src/provider/engines/brief.ts'

const seedOf = (input: Record<string, unknown>, model = 'a-model') => readBrief({ model, input }).seed

describe('readBrief', () => {
  it('takes the same seed for the same subject, however it is to be delivered', () => {
    const delivered = { aspect_ratio: '9:16', resolution: '2k', duration: 8, num_images: 4, output_format: 'webp', generate_audio: true }
    expect(seedOf({ prompt: 'a', ...delivered })).toBe(seedOf({ prompt: 'a' }))
  })

  it('takes another seed for another model, prompt, seed or reference', () => {
    const seeds = [
      seedOf({ prompt: 'a' }),
      seedOf({ prompt: 'a' }, 'another-model'),
      seedOf({ prompt: 'b' }),
      seedOf({ prompt: 'a', seed: 1 }),
      seedOf({ prompt: 'a', image_urls: ['https://a.example/1.png'] }),
      seedOf({ prompt: 'a', image_urls: ['https://a.example/2.png'] }),
    ]
    expect(new Set(seeds).size).toBe(seeds.length)
  })
})
