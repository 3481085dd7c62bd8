import fs from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { z } from 'zod'
import { parseCatalog } from '../../../src/provider/catalog/catalog-file.ts'
import { catalogFileSchema } from '../../../src/provider/catalog/catalog-schema.ts'

const root = path.resolve(import.meta.dirname, '../../..')

/** A whole model of eleven lines, the first of which is the second of its file. */
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

function problemsOf(text: string): string[] {
  const parsed = parseCatalog(text)
  return parsed.kind === 'broken' ? parsed.problems.map(({ line, message }) => `${line} ${message}`) : []
}

const changed = (from: string, to: string) => {
  expect(valid).toContain(from)
  return valid.replace(from, to)
}

describe('parseCatalog', () => {
  it('reads models by slug, with the defaults of their engine', () => {
    const parsed = parseCatalog(valid)
    const settings = {
      url: 'http://127.0.0.1:9000',
      timeout_seconds: 600,
      poll_seconds: 1,
      max_output_bytes: 134_217_728,
    }
    expect(parsed.kind === 'valid' && parsed.catalog.get('dunes')).toMatchObject({
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
      '5 models[0].type: must be audio: the engine local-audio makes nothing else',
    ])
  })

  it.each<[string, string, string | RegExp]>([
    ['no YAML', 'models: [', /^1 .*Flow sequence/],
    ['no text', '', '1 the file is empty. It must contain an object with the member models, an array'],
    ['no model', 'models: []', /^1 models: /],
    ['a key twice', `${valid}models: []\n`, '13 Map keys must be unique'],
    ['an alias without its anchor', changed('[text-to-image]', '*modes'), /^1 Unresolved alias .*modes/],
    [
      'an unknown key',
      changed('    engine: http\n', '    engine: http\n    notes: x\n'),
      '8 models[0]: has an unknown member notes',
    ],
    ['a missing key', changed('    name: Dunes\n', ''), '2 models[0].name: is missing'],
    ['a slug that is not one path segment', changed('slug: dunes', 'slug: du/nes'), /^2 models\[0\]\.slug: must be/],
    [
      'a slug twice',
      valid + valid.replace('models:\n', ''),
      '13 models[1].slug: dunes is the slug of an earlier model',
    ],
    [
      'an unknown engine',
      changed('engine: http\n', 'engine: magic\n'),
      /^7 models\[0\]\.engine: must be one of local-image, /,
    ],
    [
      'an engine of another type',
      changed('engine: http\n', 'engine: local-audio\n'),
      /^3 models\[0\]\.type: must be audio/,
    ],
    [
      'an engine without its URL',
      changed('{ url: http://127.0.0.1:9000 }', '{}'),
      '8 models[0].engine_settings.url: is missing',
    ],
    [
      'a token in the file',
      changed('9000 }', '9000, api_key: secret }'),
      '8 models[0].engine_settings: has an unknown member api_key',
    ],
    [
      'two places of one token',
      changed('9000 }', '9000, token_env: A, token_file: b }'),
      '8 models[0].engine_settings.token_file: is set together with token_env: remove one',
    ],
    [
      'text without a limit',
      changed(', max_length: 100', ''),
      /^10 models\[0\]\.input_schema\.prompt\.type: is text without a limit/,
    ],
    [
      'a limit that is not a whole number',
      changed('max_length: 100', 'max_length: 1.5'),
      '10 models[0].input_schema.prompt.max_length: must be a whole number',
    ],
    [
      'a default that is not listed',
      changed('default: s', 'default: m'),
      '11 models[0].input_schema.size.default: is not in enum',
    ],
    [
      'a type that no input has',
      changed('{ type: string, max', '{ type: file, max'),
      /^10 .*prompt\.type: must be string, number/,
    ],
    [
      'a factor of no parameter',
      changed('{ size: { s', '{ shape: { s'),
      /^12 .*multipliers\.shape: shape is not a parameter/,
    ],
    ['a value without a factor', changed(', l: 1.5', ''), '12 models[0].pricing.multipliers.size: has no factor for l'],
    ['a factor of no value', changed('l: 1.5', 'l: 1.5, xl: 2'), /^12 .*size: has a factor for xl/],
    [
      'a priced parameter that may be left out',
      changed(', default: s', ''),
      /^12 .*input_schema\.size must be required or have a default/,
    ],
    [
      'a priced parameter without a list',
      changed('enum: [s, l]', 'max_length: 9'),
      /^12 .*input_schema\.size must list its values in enum/,
    ],
    ['a price of nothing', changed('credits_base: 2', 'credits_base: 0'), /^12 models\[0\]\.pricing\.credits_base: /],
    [
      'a price with too many decimals',
      changed('credits_base: 2', 'credits_base: 0.0000001'),
      /^12 .*must have at most 6 decimals/,
    ],
  ])('refuses %s, with its line and path', (_what, text, problem) => {
    const [first = 'accepted'] = problemsOf(text)
    if (typeof problem === 'string') expect(first).toBe(problem)
    else expect(first).toMatch(problem)
  })

  it('reports a problem in a YAML alias at the line of its anchor', () => {
    const shared = changed('prompt: { type: string, max_length: 100 }', 'prompt: &text { type: string }').replace(
      'enum: [s, l]',
      'enum: [s, l]',
    )
    const second = valid
      .replace('models:\n', '')
      .replace('slug: dunes', 'slug: two')
      .replace('{ type: string, max_length: 100 }', '*text')
    expect(problemsOf(shared + second).map((problem) => problem.split(' ', 2))).toEqual([
      ['10', 'models[0].input_schema.prompt.type:'],
      ['10', 'models[1].input_schema.prompt.type:'],
    ])
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
