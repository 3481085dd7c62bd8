import { describe, expect, it } from 'vitest'
import { builtInCatalog } from '../../../src/provider/catalog/catalog-file.ts'
import { modelSchema } from '../../../src/wire/schemas.ts'

const catalog = [...builtInCatalog().values()]
const bySlug = (slug: string) => builtInCatalog().get(slug)

describe('the built-in catalog', () => {
  it('has models of all three types, in the wire format', () => {
    expect(new Set(catalog.map(({ type }) => type))).toEqual(new Set(['image', 'video', 'audio']))
    for (const model of catalog)
      expect(modelSchema.parse(model)).toEqual(modelSchema.parse(JSON.parse(JSON.stringify(model))))
  })

  it('shows that a model may be active in both environments, in one, and in none', () => {
    expect(catalog.some(({ environments }) => environments.length === 2)).toBe(true)
    expect(catalog.some(({ environments }) => environments.length === 1 && environments[0] === 'sandbox')).toBe(true)
    expect(catalog.some(({ environments }) => environments.length === 0)).toBe(true)
  })

  it('has every generation mode that the spec names', () => {
    const modes = new Set(catalog.flatMap(({ capabilities }) => capabilities))
    for (const mode of ['text-to-image', 'image-to-image', 'text-to-video', 'image-to-video', 'text-to-audio'])
      expect(modes).toContain(mode)
  })
})

describe.each(['meridian-text-to-video', 'meridian-image-to-video'])('the newer video family: %s', (slug) => {
  const { prompt, duration, resolution, aspect_ratio, image_urls, video_urls, audio_urls, generate_audio } =
    bySlug(slug)?.input_schema ?? {}

  it('has the confirmed limits of the spec', () => {
    expect(prompt).toMatchObject({ type: 'string', max_length: 30_000 })
    expect(duration).toMatchObject({ type: 'number', min: 4, max: 30 })
    expect(duration?.enum).toEqual(Array.from({ length: 27 }, (_, index) => index + 4))
    expect(resolution?.enum).toEqual(['480p', '720p', '1080p'])
    expect(aspect_ratio?.enum).toEqual(['16:9', '9:16', '1:1', '4:3', '3:4', '21:9', 'adaptive'])
    expect([image_urls?.max_items, video_urls?.max_items, audio_urls?.max_items]).toEqual([30, 10, 10])
    expect(generate_audio).toMatchObject({ type: 'boolean' })
  })

  it('is priced by duration, resolution and native audio', () => {
    expect(Object.keys(bySlug(slug)?.pricing.multipliers ?? {})).toEqual(['duration', 'resolution', 'generate_audio'])
  })
})

describe('the illustrative schemas of the spec', () => {
  it('are those of aurora-image and vela-image-to-video', () => {
    const image = bySlug('aurora-image')?.input_schema
    expect(image).toMatchObject({ prompt: { type: 'string', required: true }, image_url: { type: 'string' } })
    expect(image?.['aspect_ratio']?.enum).toEqual(['1:1', '16:9', '9:16'])
    const video = bySlug('vela-image-to-video')?.input_schema
    expect(video).toMatchObject({
      image_url: { required: true },
      duration: { type: 'number', enum: [4, 8], default: 4 },
      resolution: { enum: ['480p', '720p', '1080p'], default: '720p' },
      aspect_ratio: { enum: ['16:9', '9:16', '1:1'] },
    })
    expect(video?.['prompt']?.required).toBeUndefined()
  })
})
