import { describe, expect, it } from 'vitest'
import { catalog } from '../../../src/provider/catalog/catalog-data.ts'
import { createEngines } from '../../../src/provider/engines/registry.ts'
import { modelSchema } from '../../../src/wire/schemas.ts'

const bySlug = (slug: string) => catalog.find((model) => model.slug === slug)

describe('the catalog', () => {
  it('holds models of all three types, each slug once, fit for a path', () => {
    expect(new Set(catalog.map(({ type }) => type))).toEqual(new Set(['image', 'video', 'audio']))
    expect(new Set(catalog.map(({ slug }) => slug)).size).toBe(catalog.length)
    for (const { slug } of catalog) expect(slug).toMatch(/^[a-z0-9-]+$/)
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

describe.each(catalog.map((model) => [model.slug, model] as const))('%s', (_slug, model) => {
  const { input_schema: schema, pricing, engine } = model

  it('has the shape of the wire and an engine that makes it', () => {
    expect(modelSchema.parse(model)).toEqual(modelSchema.parse(JSON.parse(JSON.stringify(model))))
    expect(createEngines().has(engine)).toBe(true)
  })

  it('has defaults that its own descriptors allow', () => {
    for (const descriptor of Object.values(schema)) {
      const { default: value, enum: allowed, min, max, type, required } = descriptor
      if (value === undefined) continue
      expect(typeof value).toBe(type)
      expect(required).not.toBe(true)
      if (allowed) expect(allowed).toContain(value)
      if (typeof value === 'number') expect([value >= (min ?? value), value <= (max ?? value)]).toEqual([true, true])
    }
  })

  it('has a factor for exactly the values of each priced parameter, which is never left open', () => {
    for (const [name, factors] of Object.entries(pricing.multipliers ?? {})) {
      const descriptor = schema[name]
      expect(descriptor, name).toBeDefined()
      expect(descriptor?.required === true || descriptor?.default !== undefined, name).toBe(true)
      const values = descriptor?.type === 'boolean' ? [true, false] : (descriptor?.enum ?? [])
      expect(Object.keys(factors).toSorted()).toEqual(values.map(String).toSorted())
    }
  })

  it('has decimals that stay exact when they are multiplied', () => {
    const factors = Object.values(pricing.multipliers ?? {}).flatMap((byValue) => Object.values(byValue))
    for (const factor of [pricing.credits_base, ...factors]) {
      expect(factor).toBeGreaterThan(0)
      expect(String(factor)).toMatch(/^\d+(\.\d{1,2})?$/)
    }
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
