import { once } from 'node:events'
import net, { type AddressInfo } from 'node:net'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { createPoster } from '../../src/platform/outward/poster.ts'
import { diallingOf, isPublicAddress } from '../../src/platform/outward/public-url.ts'
import { resolve } from '../../src/platform/outward/resolver.ts'
import { checkWebhookUrl } from '../../src/provider/webhooks/webhook-url.ts'
import { long } from '../chaos/length.ts'
import { startTestProvider, type TestProvider } from '../provider/support/running-provider.ts'
import { refusedUrls, resolvedAddresses, takenUrls } from './cases/webhook-urls.ts'

if (long) vi.setConfig({ testTimeout: 1_800_000 })

const numRuns = long ? 100_000 : 300
const neverAsked = () => Promise.reject(new Error('a name was looked up'))
/** Any at all, halves of pairs included. */
const character = fc.nat({ max: 0x10ffff }).map((code) => String.fromCodePoint(code))
const check = (url: string, addresses: string[] = []) =>
  checkWebhookUrl(url, { allow: [], resolve: async () => addresses })

describe('at submit', () => {
  let provider: TestProvider
  let key: string
  beforeAll(async () => {
    provider = await startTestProvider()
    // Without credits: what is taken ends there, and nothing is ever sent to anybody.
    key = (await provider.createKey({ environment: 'live' })).api_key
  })
  afterAll(() => provider.stop())

  const submit = (url: unknown) =>
    provider.call('POST', '/v1/models/aurora-image', { key, body: { input: { prompt: 'x' }, webhook_url: url } })

  it.each(Object.entries(refusedUrls))('a URL that %s is refused', async (_what, urls) => {
    const amiss: unknown[] = []
    for (const [name, url] of Object.entries(urls)) {
      const { status, body } = await submit(url)
      if (status !== 400 || body.error.code !== 'webhook_url_invalid') amiss.push([name, status, body])
      await expect(checkWebhookUrl(url, { allow: [], resolve: neverAsked }), name).rejects.toMatchObject({
        status: 400,
        code: 'webhook_url_invalid',
      })
    }
    expect(amiss).toEqual([])
  })

  it.each([null, 1, true, [], ['https://hooks.example.com/'], { href: 'https://hooks.example.com/' }])(
    '%j is refused: not a text',
    async (url) => {
      expect(await submit(url)).toMatchObject({ status: 400, body: { error: { code: 'webhook_url_invalid' } } })
    },
  )

  it.each(takenUrls)('$name is accepted', async ({ url, as = url }) => {
    expect(await check(url)).toBe(as)
  })

  it('a public address is accepted', async () => {
    const answers = takenUrls
      .filter(({ url }) => /^https:\/\/[\d[]/.test(url) && !url.includes('example'))
      .map(({ url }) => submit(url))
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual(answers.map(() => 402))
  })
})

describe('a name', () => {
  it.each(resolvedAddresses)('that resolves to $name', async ({ addresses, isPublic }) => {
    const checked = check('https://hooks.example.com/', addresses)
    if (isPublic) expect(await checked).toBe('https://hooks.example.com/')
    else await expect(checked).rejects.toMatchObject({ status: 400, code: 'webhook_url_invalid' })
    expect(addresses.every(isPublicAddress)).toBe(isPublic)
  })

  it.each(resolvedAddresses.filter(({ isPublic }) => !isPublic))(
    'that was public at submit is not dialled once it resolves to $name',
    async ({ addresses }) => {
      const { url, connections } = await listenHere()
      expect(await check(url, ['8.8.8.8'])).toBe(url)
      const poster = createPoster({
        judge: (target) => diallingOf(target, []),
        resolve: async () => addresses,
        timeoutMs: 2000,
        connectionsPerHost: 1,
      })
      onTestFinished(() => poster.close())
      const outcome = await poster.post({ url, headers: {}, body: Buffer.from('{}') }, new AbortController().signal)
      expect(outcome).toEqual({
        ok: false,
        httpStatus: undefined,
        detail: 'hooks.example.com resolves to an address that is not public',
      })
      expect(connections()).toBe(0)
    },
  )

  it('that resolves differently at each attempt is resolved again each time, and the checked address is dialled', async () => {
    const { url, connections } = await listenHere()
    const asked: string[] = []
    const turns = [['10.0.0.1'], [], ['127.0.0.1', '8.8.8.8']]
    const poster = createPoster({
      judge: (target) => diallingOf(target, []),
      resolve: async (name) => {
        asked.push(name)
        return turns[asked.length - 1] ?? ['::1']
      },
      timeoutMs: 2000,
      connectionsPerHost: 1,
    })
    onTestFinished(() => poster.close())
    for (const detail of ['not public', 'does not resolve', 'not public', 'not public']) {
      const outcome = await poster.post({ url, headers: {}, body: Buffer.from('{}') }, new AbortController().signal)
      expect(outcome).toMatchObject({ ok: false, httpStatus: undefined, detail: expect.stringContaining(detail) })
    }
    expect(asked).toEqual(Array.from({ length: 4 }, () => 'hooks.example.com'))
    expect(connections()).toBe(0)
  })

  it.each(Object.entries(refusedUrls['is an address of IPv4 that is not public'] ?? {}))(
    'an address is not dialled either: %s',
    async (_name, url) => {
      const poster = createPoster({
        judge: (target) => diallingOf(target, []),
        resolve: neverAsked,
        timeoutMs: 2000,
        connectionsPerHost: 1,
      })
      onTestFinished(() => poster.close())
      const outcome = await poster.post({ url, headers: {}, body: Buffer.from('{}') }, new AbortController().signal)
      expect(outcome).toMatchObject({ ok: false, httpStatus: undefined, detail: expect.stringContaining('not sent') })
    },
  )

  it.each([
    '',
    '.',
    '...',
    'a..b',
    '-',
    'a'.repeat(300),
    'a_b.invalid',
    '*.invalid',
    'x@y',
    'a b',
    '\0',
    '127.0.0.1:80',
  ])('%j resolves to nothing', async (name) => {
    expect(await resolve(name, 500)).toEqual([])
  })
})

/** A server on this machine under a public name. It must never be reached. */
async function listenHere(): Promise<{ url: string; connections: () => number }> {
  let connections = 0
  const server = net.createServer((socket) => {
    connections += 1
    socket.destroy()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return { url: `https://hooks.example.com:${(server.address() as AddressInfo).port}/`, connections: () => connections }
}

describe('any text', () => {
  const octet = fc.nat({ max: 255 })
  const hidden: fc.Arbitrary<[number, number, number, number]> = fc.oneof(
    fc.tuple(fc.constantFrom(10, 127, 0, 255, 240), octet, octet, octet),
    fc.tuple(fc.constant(192), fc.constant(168), octet, octet),
    fc.tuple(fc.constant(172), fc.integer({ min: 16, max: 31 }), octet, octet),
    fc.tuple(fc.constant(169), fc.constant(254), octet, octet),
    fc.tuple(fc.constant(100), fc.integer({ min: 64, max: 127 }), octet, octet),
    fc.tuple(fc.integer({ min: 224, max: 239 }), octet, octet, octet),
  )
  const digits = [
    (n: number) => String(n),
    (n: number) => `0${n.toString(8)}`,
    (n: number) => `0x${n.toString(16)}`,
  ] as const
  const wide = (text: string) => text.replaceAll(/[0-9]/g, (digit) => String.fromCodePoint(0xff10 + Number(digit)))

  it('a private address is refused in any notation', async () => {
    const notation = fc.array(fc.constantFrom(...digits), { minLength: 4, maxLength: 4 })
    await fc.assert(
      fc.asyncProperty(
        hidden,
        notation,
        fc.nat({ max: 3 }),
        fc.boolean(),
        fc.constantFrom('', '.', ':8443'),
        async (at, write, joined, isWide, end) => {
          // The last of fewer numbers holds what is left of the bytes.
          const rest = at.slice(3 - joined).reduce((sum, byte) => sum * 256 + byte, 0)
          const parts = [...at.slice(0, 3 - joined), rest].map((number, place) => (write[place] ?? String)(number))
          const text = parts.join('.')
          const url = `https://${isWide ? wide(text) : text}${end}/`
          await expect(checkWebhookUrl(url, { allow: [], resolve: neverAsked }), url).rejects.toMatchObject({
            code: 'webhook_url_invalid',
          })
        },
      ),
      { numRuns },
    )
  })

  it('an IPv4 address embedded in an IPv6 one is refused', async () => {
    const prefix = fc.constantFrom(
      '::ffff:',
      '::',
      '64:ff9b::',
      '64:ff9b:1::',
      '::ffff:0:',
      'fe80::',
      'fc00::',
      '2001:db8::',
      '2001::',
      'ff0e::',
    )
    await fc.assert(
      fc.asyncProperty(prefix, fc.tuple(octet, octet, octet, octet), async (before, address) => {
        const url = `https://[${before}${address.join('.')}]/`
        await expect(checkWebhookUrl(url, { allow: [], resolve: neverAsked }), url).rejects.toMatchObject({
          code: 'webhook_url_invalid',
        })
      }),
      { numRuns },
    )
  })

  it('any text is refused, or accepted as an https URL of another machine', async () => {
    const piece = fc.constantFrom(
      'https://',
      'http://',
      '//',
      '@',
      ':',
      '/',
      '\\',
      '?',
      '#',
      '[',
      ']',
      '%',
      '%2e',
      '.',
      '。',
      '127.0.0.1',
      '::1',
      'localhost',
      'hooks.example.com',
      ':443',
      '\t',
      '\ud800',
    )
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.oneof(piece, fc.string({ unit: character, maxLength: 4 })), { maxLength: 8 }),
        async (pieces) => {
          const text = pieces.join('')
          const href = await check(text, ['8.8.8.8']).catch((error: unknown) => {
            expect(error).toMatchObject({ status: 400, code: 'webhook_url_invalid' })
          })
          if (href === undefined) return
          const { protocol, hostname, username, password } = new URL(href)
          expect([protocol, username, password]).toEqual(['https:', '', ''])
          expect(hostname).not.toMatch(/^(127(\.\d+){3}|localhost|\[::1\])\.*$/)
        },
      ),
      { numRuns },
    )
  })
})
