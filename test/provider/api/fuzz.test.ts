import http from 'node:http'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startTestProvider, type TestProvider } from '../support/running-provider.ts'

let provider: TestProvider
let key: string
beforeAll(async () => {
  provider = await startTestProvider({ cancelEndpoint: true })
  key = (await provider.createKey()).api_key
})
afterAll(() => provider.stop())

/** Past fetch, which would tidy up what is sent. */
function send(method: string, path: string, headers: http.OutgoingHttpHeaders, body: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(provider.url)
    const req = http.request({ hostname, port, method, path, headers: { 'x-api-key': key, ...headers } }, (res) => {
      res.resume().on('end', () => resolve(res.statusCode ?? 0))
    })
    req.on('error', reject)
    req.end(body)
  })
}

const json = { 'content-type': 'application/json' }
const slug = fc.constantFrom(
  'aurora-image',
  'aurora-image-pro',
  'meridian-text-to-video',
  'lyra-audio',
  'no-such-model',
  '__proto__',
)
const anything = fc.anything({
  withNullPrototype: false,
  withBigInt: false,
  withDate: false,
  withMap: false,
  withSet: false,
  withTypedArray: false,
  withSparseArray: false,
})
const text = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.string(),
  fc.constantFrom('\ud800', '\0', 'https://', 'https://[::1', 'https://a:b@c/'),
)
const input = fc.oneof(
  anything,
  fc.dictionary(
    fc.oneof(
      fc.constantFrom('prompt', 'duration', 'image_urls', 'generate_audio', 'seed', '__proto__', 'toString'),
      text,
    ),
    fc.oneof(anything, text),
  ),
)

describe('anything that a client sends', () => {
  it('as a body causes no 5xx', async () => {
    const body = fc.record({ input, webhook_url: fc.oneof(anything, text) }, { requiredKeys: [] })
    await fc.assert(
      fc.asyncProperty(
        slug,
        fc.constantFrom('', '/estimate'),
        fc.oneof(body, anything),
        async (model, operation, value) => {
          const status = await send('POST', `/v1/models/${model}${operation}`, json, JSON.stringify(value) ?? '')
          expect(status).toBeLessThan(500)
          expect(status).toBeGreaterThanOrEqual(200)
        },
      ),
      { numRuns: 100 },
    )
  })

  it('as a path, a query or a header causes no 5xx', async () => {
    const segment = fc.oneof(
      fc.webSegment(),
      fc.constantFrom('%00', '%ff', '%2e%2e', '%F0%9F%92%A9', '5f0c1c5e-3c0a-4c1c-9d5c-1c2d3e4f5a6b', '..'),
    )
    const header = fc.string({ unit: fc.integer({ min: 0x20, max: 0x7e }).map((code) => String.fromCharCode(code)) })
    const root = fc.constantFrom('/v1/models', '/v1/requests', '/v1/account', '/v1', '/media', '/docs', '')
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom('GET', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'),
        root,
        fc.array(segment, { maxLength: 3 }),
        fc.webQueryParameters(),
        fc.record(
          { 'idempotency-key': header, accept: header, range: header, authorization: header },
          { requiredKeys: [] },
        ),
        async (method, base, segments, query, headers) => {
          const path = [base, ...segments].join('/')
          expect(await send(method, `${path || '/'}?${query}`, { ...json, ...headers }, '')).toBeLessThan(500)
        },
      ),
      { numRuns: 100 },
    )
  })
})
