import fs from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { z } from 'zod'
import { parseCatalog } from '../../../src/provider/catalog/catalog-file.ts'
import { catalogFileSchema } from '../../../src/provider/catalog/catalog-schema.ts'

const root = path.resolve(import.meta.dirname, '../../..')

/** A catalog of one model. */
const valid = `models:
  - slug: dunes
    type: image
    name: Dunes
    capabilities: [text-to-image]
    environments: [live]
    engine: http
    engine_settings: { url: http://127.0.0.1:9000 }
    input_schema:
      prompt: { type: string, max_length: 100 }
      size: { type: string, enum: [s, l], default: s }
    pricing: { credits_base: 2, multipliers: { size: { s: 1, l: 1.5 } } }
`

const problemsOf = (text: string) => parseCatalog(text).problems

const changed = (from: string, to: string) => {
  expect(valid).toContain(from)
  return valid.replace(from, to)
}

describe('parseCatalog', () => {
  it('reads models by slug, with the defaults of their engine', () => {
    const { catalog } = parseCatalog(valid)
    const settings = {
      url: 'http://127.0.0.1:9000',
      timeout_seconds: 600,
      poll_seconds: 1,
      max_output_bytes: 134_217_728,
    }
    expect(catalog?.get('dunes')).toMatchObject({
      engine: 'http',
      engine_settings: settings,
    })
  })

  it('reads JSON, indented with tabs too', () => {
    const model = { slug: 'a', type: 'audio', name: 'A', capabilities: ['c'], environments: [], engine: 'local-audio' }
    const text = JSON.stringify(
      { models: [{ ...model, input_schema: {}, pricing: { credits_base: 1 } }] },
      undefined,
      '\t',
    )
    expect(problemsOf(text)).toEqual([])
    expect(problemsOf(text.replace('"audio"', '"video"'))).toEqual([
      'models.a.type: must be audio: the engine local-audio makes nothing else',
    ])
  })

  it.each<[string, string, string | RegExp]>([
    ['no YAML', 'models: [', /Flow sequence/],
    ['no text', '', 'the file is empty. It must contain an object with the member models, an array'],
    ['no model', 'models: []', /^models: /],
    ['a key twice', `${valid}models: []\n`, 'Map keys must be unique at line 13, column 1'],
    ['an alias without its anchor', changed('[text-to-image]', '*modes'), /^Unresolved alias .*modes/],
    [
      'an unknown key',
      changed('    engine: http\n', '    engine: http\n    notes: x\n'),
      'models.dunes: has an unknown member notes',
    ],
    ['a missing key', changed('    name: Dunes\n', ''), 'models.dunes.name: is missing'],
    ['a slug that is not one path segment', changed('slug: dunes', 'slug: du/nes'), /^models\.du\/nes\.slug: must be/],
    [
      'a slug twice',
      valid + valid.replace('models:\n', ''),
      'models.dunes.slug: dunes is the slug of an earlier model',
    ],
    [
      'an unknown engine',
      changed('engine: http\n', 'engine: magic\n'),
      /^models\.dunes\.engine: must be one of local-image, /,
    ],
    [
      'an engine of another type',
      changed('engine: http\n', 'engine: local-audio\n'),
      /^models\.dunes\.type: must be audio/,
    ],
    [
      'an engine without its URL',
      changed('{ url: http://127.0.0.1:9000 }', '{}'),
      'models.dunes.engine_settings.url: is missing',
    ],
    [
      'a token in the file',
      changed('9000 }', '9000, api_key: secret }'),
      'models.dunes.engine_settings: has an unknown member api_key',
    ],
    [
      'two places of one token',
      changed('9000 }', '9000, token_env: A, token_file: b }'),
      'models.dunes.engine_settings.token_file: is set together with token_env: remove one',
    ],
    [
      'text without a limit',
      changed(', max_length: 100', ''),
      /^models\.dunes\.input_schema\.prompt\.type: is text without a limit/,
    ],
    [
      'a limit that is not a whole number',
      changed('max_length: 100', 'max_length: 1.5'),
      'models.dunes.input_schema.prompt.max_length: must be a whole number',
    ],
    [
      'a default that is not listed',
      changed('default: s', 'default: m'),
      'models.dunes.input_schema.size.default: is not in enum',
    ],
    [
      'a type that no input has',
      changed('{ type: string, max', '{ type: file, max'),
      /prompt\.type: must be string, number/,
    ],
    [
      'a factor of no parameter',
      changed('{ size: { s', '{ shape: { s'),
      /multipliers\.shape: shape is not a parameter/,
    ],
    ['a value without a factor', changed(', l: 1.5', ''), 'models.dunes.pricing.multipliers.size: has no factor for l'],
    ['a factor of no value', changed('l: 1.5', 'l: 1.5, xl: 2'), /size: has a factor for xl/],
    [
      'a priced parameter that may be left out',
      changed(', default: s', ''),
      /input_schema\.size must be required or have a default/,
    ],
    [
      'a priced parameter without a list',
      changed('enum: [s, l]', 'max_length: 9'),
      /input_schema\.size must list its values in enum/,
    ],
    ['a price of nothing', changed('credits_base: 2', 'credits_base: 0'), /^models\.dunes\.pricing\.credits_base: /],
    [
      'a price with too many decimals',
      changed('credits_base: 2', 'credits_base: 0.0000001'),
      /must have at most 6 decimals/,
    ],
  ])('refuses %s, with its place', (_what, text, problem) => {
    const [first = 'accepted'] = problemsOf(text)
    if (typeof problem === 'string') expect(first).toBe(problem)
    else expect(first).toMatch(problem)
  })
})

describe('docs/catalog.schema.json', () => {
  const file = path.join(root, 'docs/catalog.schema.json')

  it("is generated from the provider's schema", async () => {
    const schema = z.toJSONSchema(catalogFileSchema, { io: 'input', reused: 'ref' })
    await expect(`${JSON.stringify({ title: 'Catalog of mediadock', ...schema }, undefined, 2)}\n`).toMatchFileSnapshot(
      file,
    )
  })

  it('accepts the built-in file, and refuses a model without a price', async () => {
    const schema = z.fromJSONSchema(JSON.parse(await fs.readFile(file, 'utf8')))
    const { models } = parse(await fs.readFile(path.join(root, 'src/provider/catalog/catalog.yaml'), 'utf8'))
    expect(schema.safeParse({ models }).error?.issues ?? []).toEqual([])
    expect(schema.safeParse({ models: [{ ...models[0], pricing: undefined }] }).success).toBe(false)
  })
})
