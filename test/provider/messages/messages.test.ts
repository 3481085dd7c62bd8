import fs from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { languages, messages, translate } from '../../../src/provider/messages/messages.ts'
import { setFaults } from '../../../src/provider/operating/commands.ts'
import { eventually } from '../../support/eventually.ts'
import { startTestProvider, type TestProvider } from '../support/running-provider.ts'

const { en } = messages
const src = path.resolve(import.meta.dirname, '../../../src/provider')
const namesIn = (text: string) => new Set([...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name))

describe.each(languages)('%s', (language) => {
  it('has every message, with every placeholder and no other', () => {
    expect(Object.keys(messages[language])).toEqual(Object.keys(en))
    for (const [key, text] of Object.entries(en))
      expect(namesIn(Reflect.get(messages[language], key)), key).toEqual(namesIn(text))
  })

  it('has no repeated and no English message', () => {
    const texts = Object.values<string>(messages[language])
    expect(new Set(texts).size).toBe(texts.length)
    if (language !== 'en') expect(texts.filter((text) => Object.values<string>(en).includes(text))).toEqual([])
  })
})

it.each(Object.entries(en))('%s is recognised by its English text with any values', (key, text) => {
  const values = (name: string) =>
    /^(max|min|seconds|limit|bytes|levels)$/.test(name) ? '7' : 'a "b" must be a number: {c} $& $1'
  const fill = (template: string) => template.replaceAll(/\{(\w+)\}/g, (_braces, name: string) => values(name))
  expect(translate(fill(text), 'de')).toBe(fill(Reflect.get(messages.de, key)))
})

it('has every message of a FAILED request', async () => {
  const files = [
    path.join(src, 'queue/job.ts'),
    path.join(src, 'references/references.ts'),
    ...(await fs.readdir(path.join(src, 'engines'))).map((file) => path.join(src, 'engines', file)),
  ]
  const contents = await Promise.all(
    files.filter((file) => file.endsWith('.ts')).map((file) => fs.readFile(file, 'utf8')),
  )
  const literals = contents.flatMap((code) => [
    ...code.matchAll(
      /(?:EngineError|failed)\(\s*(?:\w+ \? )?(?:'(?<a>[^']+)'(?: : '(?<b>[^']+)')?|`(?<c>(?:\$\{(?:[^{}]|\{[^}]*\})*\}|[^`])+)`)/g,
    ),
  ])
  const texts = literals.flatMap(({ groups }) => Object.values(groups ?? {}).filter((text) => text !== undefined))
  expect(texts.length).toBeGreaterThan(20)
  const unknown = texts
    .map((text) => text.replaceAll(/\$\{(?:[^{}]|\{[^}]*\})*\}/g, '1'))
    .filter((text) => translate(text, 'de') === undefined)
  expect(unknown).toEqual([])
})

describe('a caller', () => {
  let provider: TestProvider
  let key: Awaited<ReturnType<TestProvider['createKey']>>
  beforeAll(async () => {
    provider = await startTestProvider()
    key = await provider.createKey()
  })
  afterAll(() => provider.stop())
  const ask = (where: string, language: string | undefined) =>
    provider.call('GET', where, {
      key: key.api_key,
      headers: language === undefined ? {} : { 'accept-language': language },
    })

  it.each([
    ['de', 'de'],
    ['de-AT', 'de'],
    ['pt-BR, en;q=0.5', 'pt'],
    ['JA-jp', 'ja'],
    ['fr;q=0.3, es;q=0.8, en;q=0.5', 'es'],
    ['en, de;q=0.9', 'en'],
    ['nl, fr;q=0.2', 'fr'],
    ['de;q=0, fr;q=0.1', 'fr'],
    ['nl', 'en'],
    ['de;q=0', 'en'],
    ['*', 'en'],
    ['nl, *;q=0.1', 'en'],
    ['', 'en'],
    ['\u00a7;;q=,,', 'en'],
  ] as const)('that accepts %j is answered in %s', async (accepted, language) => {
    const { status, headers, body } = await ask('/v1/models/none', accepted)
    expect(status).toBe(404)
    expect(headers.get('content-language')).toBe(language)
    expect(headers.get('vary')).toBe('Accept-Language')
    expect(body.error).toEqual({
      type: 'invalid_request_error',
      code: 'not_found',
      message: messages[language].unknown_model.replace('{model}', 'none'),
    })
  })

  it('is answered in its language by every refusal', async () => {
    const headers = { 'accept-language': 'fr' }
    const input = { prompt: 'x', webhookUrl: 'y' }
    const answers = [
      await provider.call('GET', '/v1/account', { headers }),
      await provider.call('DELETE', '/v1/models', { key: key.api_key, headers }),
      await provider.call('GET', '/v1/nothing', { key: key.api_key, headers }),
      await provider.call('POST', '/v1/models/aurora-image', { key: key.api_key, headers, rawBody: '{' }),
      await provider.call('POST', '/v1/models/aurora-image', { key: key.api_key, headers, body: { input, url: 'x' } }),
      await provider.call('POST', '/v1/models/aurora-image', { key: key.api_key, headers, body: { input } }),
      await provider.call('POST', '/v1/models/aurora-image', {
        key: key.api_key,
        headers,
        body: { input: {}, webhook_url: 'ftp://x/' },
      }),
    ]
    expect(answers.map(({ status }) => status)).toEqual([401, 405, 404, 400, 400, 422, 422])
    for (const answer of answers) expect(answer.headers.get('content-language'), answer.body.error.message).toBe('fr')
    expect(answers[1]?.body.error.message).toBe('DELETE n’est pas possible ici, utilisez GET, HEAD')
    expect(answers[5]?.body.error.message).toBe('input.webhookUrl n’est pas un paramètre de ce modèle')
  })

  it('gets the reason of a FAILED request in its language, and an engine’s own words unchanged', async () => {
    await setFaults(provider.deps, key.id, { failed: 1 })
    const body = { input: { prompt: 'x' } }
    const { body: submitted } = await provider.call('POST', '/v1/models/aurora-image', { key: key.api_key, body })
    const where = `/v1/requests/${submitted.request_id}`
    const english = await eventually(async () => {
      const answer = await ask(where, undefined)
      return answer.status === 200 && answer
    })
    expect(english.body.error).toEqual({ code: 'GENERATION_FAILED', message: en.failed_by_fault })
    expect(english.headers.get('content-language')).toBe('en')
    const japanese = await ask(where, 'ja, en;q=0.5')
    expect(japanese.body).toEqual({
      ...english.body,
      error: { code: 'GENERATION_FAILED', message: messages.ja.failed_by_fault },
    })
    expect(japanese.headers.get('content-language')).toBe('ja')
    expect(japanese.headers.get('vary')).toBe('Accept-Language')

    await provider.database
      .sql`update provider.requests set error_message = 'the kiln is cold' where id = ${submitted.request_id}`
    const own = await ask(where, 'ja')
    expect(own.body.error.message).toBe('the kiln is cold')
    expect(own.headers.get('content-language')).toBe('en')
  })
})
