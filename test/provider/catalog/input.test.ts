import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { HttpError } from '../../../src/platform/http/http.ts'
import { builtInCatalog } from '../../../src/provider/catalog/catalog-file.ts'
import { catalogEntry } from '../../../src/provider/catalog/catalog.ts'
import { validateInput } from '../../../src/provider/catalog/input.ts'
import { priceOf } from '../../../src/provider/catalog/pricing.ts'
import { catalogEntrySchema, modelSchema } from '../../../src/wire/schemas.ts'

const catalog = [...builtInCatalog().values()]
const model = (slug: string) => builtInCatalog().get(slug) ?? expect.fail(`no ${slug}`)
const video = model('meridian-text-to-video')
const refusal = (slug: string, input: Record<string, unknown>) => {
  try {
    validateInput(model(slug), input)
  } catch (error) {
    return error instanceof HttpError ? error.message : 'another error'
  }
  return 'accepted'
}

describe('validateInput', () => {
  it('fills in the defaults', () => {
    expect(validateInput(video, { prompt: 'x' })).toEqual({
      prompt: 'x',
      duration: 5,
      resolution: '720p',
      aspect_ratio: '16:9',
      generate_audio: false,
    })
  })

  it.each([
    ['prompt of 30,000 characters', { prompt: 'x'.repeat(30_000) }, 'accepted'],
    ['prompt of 30,000 characters outside the basic plane', { prompt: '🌍'.repeat(30_000) }, 'accepted'],
    ['prompt of 30,001 characters', { prompt: 'x'.repeat(30_001) }, 'input.prompt must have at most 30000 characters'],
    ['duration 4', { prompt: 'x', duration: 4 }, 'accepted'],
    ['duration 30', { prompt: 'x', duration: 30 }, 'accepted'],
    ['duration 3', { prompt: 'x', duration: 3 }, /^input\.duration must be one of/],
    ['duration 31', { prompt: 'x', duration: 31 }, /^input\.duration must be one of/],
    ['duration 4.5', { prompt: 'x', duration: 4.5 }, /^input\.duration must be one of/],
    ['duration as text', { prompt: 'x', duration: '4' }, 'input.duration must be a number'],
    ['each resolution', { prompt: 'x', resolution: '480p' }, 'accepted'],
    ['resolution 4k', { prompt: 'x', resolution: '4k' }, /^input\.resolution must be one of 480p, 720p, 1080p/],
    ['aspect_ratio adaptive', { prompt: 'x', aspect_ratio: 'adaptive' }, 'accepted'],
    ['aspect_ratio 21:9', { prompt: 'x', aspect_ratio: '21:9' }, 'accepted'],
    ['aspect_ratio 5:4', { prompt: 'x', aspect_ratio: '5:4' }, /^input\.aspect_ratio/],
    ['30 reference images', { prompt: 'x', image_urls: Array(30).fill('u') }, 'accepted'],
    [
      '31 reference images',
      { prompt: 'x', image_urls: Array(31).fill('u') },
      'input.image_urls must have at most 30 items',
    ],
    ['10 reference videos', { prompt: 'x', video_urls: Array(10).fill('u') }, 'accepted'],
    [
      '11 reference videos',
      { prompt: 'x', video_urls: Array(11).fill('u') },
      'input.video_urls must have at most 10 items',
    ],
    [
      '11 reference sounds',
      { prompt: 'x', audio_urls: Array(11).fill('u') },
      'input.audio_urls must have at most 10 items',
    ],
    ['a reference that is not a string', { prompt: 'x', image_urls: ['u', 7] }, 'input.image_urls[1] must be a string'],
    ['references that are no list', { prompt: 'x', image_urls: 'u' }, 'input.image_urls must be an array'],
    ['generate_audio true', { prompt: 'x', generate_audio: true }, 'accepted'],
    ['generate_audio 1', { prompt: 'x', generate_audio: 1 }, 'input.generate_audio must be a boolean'],
    ['references of 2,048 characters', { prompt: 'x', image_urls: ['u', 'u'.repeat(2048)] }, 'accepted'],
    [
      'a picture of 2,049 characters',
      { prompt: 'x', image_urls: ['u', 'u'.repeat(2049)] },
      'input.image_urls[1] must have at most 2048 characters',
    ],
    [
      'a video of 2,049 characters',
      { prompt: 'x', video_urls: ['u'.repeat(2049)] },
      'input.video_urls[0] must have at most 2048 characters',
    ],
    [
      'a sound of 2,049 characters',
      { prompt: 'x', audio_urls: ['u'.repeat(2049)] },
      'input.audio_urls[0] must have at most 2048 characters',
    ],
    ['a lone surrogate in a list', { prompt: 'x', image_urls: ['\udc00'] }, /^input\.image_urls\[0\]/],
  ])('of the confirmed video family: %s', (_name, input, expected) => {
    if (typeof expected === 'string') expect(refusal(video.slug, input)).toBe(expected)
    else expect(refusal(video.slug, input)).toMatch(expected)
  })

  it.each(catalog.map((entry) => [entry.slug, entry] as const))(
    'bounds every text of %s',
    (_slug, { input_schema: schema }) => {
      for (const [key, { type, enum: values, items, max_items: maxItems, max_length: maxLength }] of Object.entries(
        schema,
      )) {
        if (type === 'string' && values === undefined) expect(maxLength, key).toBeGreaterThan(0)
        if (type === 'array') expect(maxItems, key).toBeGreaterThan(0)
        if (items?.type === 'string') expect(items.max_length, key).toBeGreaterThan(0)
      }
    },
  )

  it('rejects every member that the schema does not name, and never throws', () => {
    const value = fc.oneof(
      fc.string(),
      fc.double(),
      fc.boolean(),
      fc.constant(null),
      fc.array(fc.anything()),
      fc.object(),
    )
    fc.assert(
      fc.property(
        fc.constantFrom(...catalog),
        fc.dictionary(fc.oneof(fc.string(), fc.constantFrom('prompt', 'duration', 'seed')), value),
        (entry, raw) => {
          try {
            const input = validateInput(entry, raw)
            expect(Object.keys(entry.input_schema)).toEqual(expect.arrayContaining(Object.keys(input)))
            expect(Number(priceOf(entry, input))).toBeGreaterThan(0)
          } catch (error) {
            expect(error).toBeInstanceOf(HttpError)
            expect(error).toMatchObject({ status: 422, code: 'model_input_invalid' })
          }
        },
      ),
    )
  })
})

describe('priceOf', () => {
  it('is the base times one factor of each parameter, exactly', () => {
    expect(priceOf(video, validateInput(video, { prompt: 'x' }))).toBe('20')
    expect(
      priceOf(video, validateInput(video, { prompt: 'x', duration: 7, resolution: '1080p', generate_audio: true })),
    ).toBe('94.5')
    const pricing = { credits_base: 0.1, multipliers: { a: { x: 0.2 }, b: { y: 1.1 } } }
    expect(priceOf({ pricing }, { a: 'x', b: 'y' })).toBe('0.022')
    expect(0.1 * 0.2 * 1.1).not.toBe(0.022)
    expect(priceOf({ pricing: { credits_base: 0.000001 } }, {})).toBe('0.000001')
    expect(priceOf({ pricing: { credits_base: 100 } }, {})).toBe('100')
  })
})

describe('the catalog', () => {
  it.each(catalog.map((entry) => [entry.slug, entry] as const))('%s is what the spec calls a model', (_slug, entry) => {
    modelSchema.parse(entry)
    expect(catalogEntrySchema.parse(catalogEntry(entry)).pricing.credits).toBeGreaterThan(0)
    for (const [parameter, factors] of Object.entries(entry.pricing.multipliers ?? {})) {
      const {
        default: fallback,
        required,
        enum: values,
      } = entry.input_schema[parameter] ?? expect.fail(`${parameter} is no parameter`)
      expect(required === true || fallback !== undefined).toBe(true)
      if (values) expect(Object.keys(factors).toSorted()).toEqual(values.map(String).toSorted())
    }
  })
})
