import { describe, expect, it } from 'vitest'
import { catalog } from '../../../src/provider/catalog/catalog-data.ts'
import { engineNameOf, engineSettingsSchema } from '../../../src/provider/engines/engine-settings.ts'
import { createEngines } from '../../../src/provider/engines/registry.ts'

const service = { url: 'https://images.example/v1/', api_key: 'k', model: 'gpt-image-1' }

const problemsOf = (value: unknown) =>
  engineSettingsSchema.safeParse(value).error?.issues.map(({ message }) => message) ?? []

describe('createEngines', () => {
  it('has the local engines without any settings', () => {
    expect([...createEngines().keys()]).toEqual([
      'local-image',
      'local-image-with-original',
      'local-video',
      'local-audio',
    ])
  })

  it('has openai-images when it is configured', () => {
    const settings = engineSettingsSchema.parse({ 'openai-images': service })
    expect(createEngines({ settings }).has('openai-images')).toBe(true)
  })

  it('names each engine as it is registered', () => {
    for (const [name, engine] of createEngines()) expect(engine.name).toBe(name)
  })
})

describe('engineNameOf', () => {
  it('is the bound engine, or else the catalog’s', () => {
    const settings = engineSettingsSchema.parse({
      'openai-images': service,
      models: { 'aurora-image': 'openai-images' },
    })
    const [image, video] = ['aurora-image', 'meridian-text-to-video'].map((slug) =>
      catalog.find((model) => model.slug === slug),
    )
    if (!image || !video) throw new Error('the catalog has changed')
    expect(engineNameOf(image, settings)).toBe('openai-images')
    expect(engineNameOf(video, settings)).toBe('local-video')
    expect(engineNameOf(image)).toBe('local-image')
  })
})

describe('engineSettingsSchema', () => {
  it('fills in what may be left out', () => {
    expect(engineSettingsSchema.parse({ 'openai-images': service })).toEqual({
      'openai-images': {
        ...service,
        url: 'https://images.example/v1',
        response_format: 'b64_json',
        max_images_per_call: 10,
        timeout_seconds: 180,
        max_answer_bytes: 67_108_864,
      },
      models: {},
    })
  })

  it.each([
    [
      'an unknown model',
      { models: { nothing: 'local-image' } },
      'models.nothing: there is no such model in the catalog',
    ],
    [
      'an engine that is not configured',
      { models: { 'aurora-image': 'openai-images' } },
      'models.aurora-image: the engine openai-images is not configured',
    ],
    [
      'an engine of another type',
      { models: { 'lyra-audio': 'local-image' } },
      'models.lyra-audio: the engine local-image makes no audio',
    ],
    [
      'a service without http',
      { 'openai-images': { ...service, url: 'ftp://images.example' } },
      'must be an http or https URL',
    ],
    ['a key that nothing reads', { 'openai-image': service }, 'Unrecognized key'],
  ])('refuses %s', (_what, value, problem) => {
    expect(problemsOf(value).join()).toContain(problem)
  })
})
