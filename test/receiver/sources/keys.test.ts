import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, test } from 'vitest'
import { usableKey } from '../../../src/receiver/domain/keys.ts'
import { parseKeys, withSources } from '../../../src/receiver/sources/keys.ts'
import { kinds } from '../../../src/receiver/sources/kinds.ts'

const own = parseKeys(
  JSON.stringify([{ name: 'live', api_key: 'service_live_hush', signing_secret: 'whsec_hush_hush_hush' }]),
)
const whsec = (byte: number, bytes = 32) => `whsec_${Buffer.alloc(bytes, byte).toString('base64')}`
const key = { name: 'r', api_key: 'r8_hush', signing_secret: whsec(1) }
const replicate = { name: 'pictures', kind: 'replicate', keys: [key] }
const text = 'hush_hush_hush_hush'

/** The text of SOURCES_FILE with one source. */
const file = (...sources: unknown[]) => JSON.stringify(sources)

test('a source has its kind, its secrets and the URL of its kind; its keys count as live', () => {
  const keys = withSources(own, file(replicate))
  const source = keys.sources.get('pictures') ?? expect.fail()
  expect(source).toMatchObject({ name: 'pictures', apiUrl: 'https://api.replicate.com/v1' })
  expect(source.kind).toBe(kinds['replicate'])
  expect(source.secrets).toEqual([{ name: 'r', signingSecret: key.signing_secret }])
  expect(keys.byName.get('r')).toEqual({
    name: 'r',
    source,
    apiKey: 'r8_hush',
    signingSecret: key.signing_secret,
    retired: false,
    environment: 'live',
  })
  expect(keys.defaultSource).toBe(own.defaultSource)
  expect(keys.sources.size).toBe(1)
})

test('api_url replaces the URL of the kind', () => {
  const keys = withSources(own, file({ ...replicate, api_url: 'http://127.0.0.1:4000/replicate/' }))
  expect(keys.sources.get('pictures')?.apiUrl).toBe('http://127.0.0.1:4000/replicate')
})

test('sources that are read again replace the earlier ones', () => {
  const before = withSources(own, file(replicate))
  const keys = withSources(before, file({ ...replicate, name: 'others' }))
  expect([...keys.sources.keys()]).toEqual(['others'])
  expect(keys.all.map(({ name }) => name)).toEqual(['live', 'r'])
  expect(withSources(before, '[]').all).toEqual(own.all)
})

test('two sources of one kind may have the same secret, and a source several keys', () => {
  const keys = withSources(
    own,
    file(
      { ...replicate, keys: [key, { name: 'old', signing_secret: whsec(2), retired: true }] },
      { ...replicate, name: 'others', keys: [{ ...key, name: 'o' }] },
    ),
  )
  expect(keys.sources.get('pictures')?.secrets).toHaveLength(2)
  expect(keys.byName.get('old')).toMatchObject({ apiKey: undefined, retired: true })
})

test('the key that is used without a name is one of the default source', () => {
  expect(usableKey(withSources(own, file(replicate)), undefined).name).toBe('live')
})

describe('of each kind', () => {
  // The secrets of the others are any text.
  const secrets: Readonly<Record<string, string>> = {
    gemini: whsec(1),
    replicate: whsec(1),
    'standard-webhooks': whsec(1),
  }
  const more: Readonly<Record<string, object>> = {
    fal: { account: 'user_1' },
    'standard-webhooks': { api_url: 'https://me.test' },
  }
  test.each(Object.keys(kinds))('%s is accepted', (kind) => {
    const signing_secret = kinds[kind]?.secrets === undefined ? undefined : (secrets[kind] ?? text)
    const [name, keys] = ['mine', [{ name: 'k', api_key: 'hush', signing_secret }]]
    const source = { name, kind, keys, ...more[kind] }
    expect(withSources(own, file(source)).sources.get('mine')?.kind).toBe(kinds[kind])
  })
})

describe('the message names the place and shows no value:', () => {
  const standard = { name: 'mine', kind: 'standard-webhooks', keys: [{ name: 'k', signing_secret: whsec(1) }] }
  test('nothing is wrong with a source that is not called and has no api_key', () => {
    expect(withSources(own, file(standard)).byName.get('k')?.apiKey).toBeUndefined()
  })

  test.each<[string, unknown[], string]>([
    ['an unknown kind', [{ ...replicate, kind: 'hush' }], '[0].kind must be one of'],
    ['a kind of every object', [{ ...replicate, kind: 'constructor' }], '[0].kind must be one of'],
    ['a name in capitals', [{ ...replicate, name: 'Hush' }], '[0].name must be 1 to 63 lower-case'],
    ['a name after a hyphen', [{ ...replicate, name: '-x' }], 'no hyphen first'],
    ['the name of the first', [{ ...replicate, name: 'generation-queue' }], '[0].name must not be generation-queue'],
    ['a misspelt member', [{ ...replicate, apiurl: 'https://me.test' }], '[0] has an unknown member apiurl'],
    ['no keys', [{ ...replicate, keys: [] }], '[0].keys contains no key'],
    ['no api_key', [{ ...replicate, keys: [{ ...key, api_key: undefined }] }], '[0].keys[0] has no api_key'],
    ['an http URL', [{ ...replicate, api_url: 'http://hush.test' }], '[0].api_url must be an https URL'],
    [
      'a URL with credentials',
      [{ ...replicate, api_url: 'https://a:hush@b.test' }],
      '[0].api_url must be an https URL',
    ],
    [
      'fal without an account',
      [{ ...replicate, kind: 'fal', keys: [{ name: 'f', api_key: 'hush' }] }],
      '[0].account is missing',
    ],
    ['an account of another kind', [{ ...replicate, account: 'hush' }], '[0] must not have account or key_set_url'],
    ['no URL to call', [{ ...standard, keys: [{ ...key }] }], '[0].keys[0].api_key needs api_url'],
    ['two sources of one name', [replicate, { ...replicate, keys: [{ ...key, name: 'x' }] }], 'contains two sources'],
    [
      'two keys of one name',
      [{ ...replicate, keys: [key, { ...key, signing_secret: whsec(2) }] }],
      '[0].keys contains two keys',
    ],
    [
      'the name of a key of another source',
      [{ ...replicate, keys: [{ ...key, name: 'live' }] }],
      'contains a key with the name',
    ],
    [
      'two equal secrets',
      [{ ...replicate, keys: [key, { ...key, name: 's' }] }],
      '[0].keys[1].signing_secret is the same as that of [0]',
    ],
    [
      'a short secret',
      [{ ...replicate, keys: [{ ...key, signing_secret: whsec(1, 23) }] }],
      '[0].keys[0].signing_secret must be whsec_ and the base64 of 24 to 64 bytes, or whpk_',
    ],
    [
      'a missing secret',
      [{ ...replicate, keys: [{ ...key, signing_secret: undefined }] }],
      '[0].keys[0].signing_secret is missing',
    ],
    [
      'a short text',
      [{ ...replicate, kind: 'openrouter-video', keys: [{ ...key, signing_secret: 'hush' }] }],
      '[0].keys[0].signing_secret must have at least 16 bytes',
    ],
    ['a secret of an unsigned kind', [{ ...replicate, kind: 'luma' }], '[0].keys[0].signing_secret must be left out'],
  ])('%s', (_, sources, message) => {
    expect(() => withSources(own, file(...sources))).toThrow(message)
    expect(() => withSources(own, file(...sources))).not.toThrow(/hush/i)
  })
})

test.each(Object.keys(kinds))('the page of %s has settings that are accepted', async (kind) => {
  const page = await readFile(path.join(import.meta.dirname, `../../../docs/sources/${kind}.md`), 'utf8')
  const [, example = ''] = /```json\n([^`]*)```/.exec(page) ?? []
  const whole = example.replaceAll('whsec_…', whsec(1)).replaceAll('…', 'x'.repeat(16))
  const { sources } = withSources(own, `[${whole}]`)
  expect([...sources.values()].map((source) => source.kind)).toEqual([kinds[kind]])
})
