import { spawn, type ChildProcess } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { setFaults } from '../../../src/provider/operating/commands.ts'
import { eventually } from '../../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { call, startTestProvider, type CallOptions, type TestProvider } from '../support/running-provider.ts'

/** Prism stands between the test and the provider: a request or an answer that the document does not allow becomes a problem+json. */
let provider: TestProvider
let prism: ChildProcess
let proxyUrl = ''
let key: Awaited<ReturnType<TestProvider['createKey']>>
let live: Awaited<ReturnType<TestProvider['createKey']>>
const driven = new Set<string>()

beforeAll(async () => {
  provider = await startTestProvider({ cancelEndpoint: true })
  key = await provider.createKey({ account: 'contract' })
  live = await provider.createKey({ account: 'contract', environment: 'live' })
  const { body: document } = await provider.call('GET', '/openapi.json')
  const file = path.join(provider.settings.mediaDir, 'openapi.json')
  await fs.writeFile(file, JSON.stringify(document))
  const port = await freePort()
  proxyUrl = `http://127.0.0.1:${port}`
  const bin = path.resolve(import.meta.dirname, '../../../node_modules/@stoplight/prism-cli/dist/index.js')
  prism = spawn(
    process.execPath,
    [bin, 'proxy', '--errors', '-h', '127.0.0.1', '-p', String(port), file, provider.url],
    {
      stdio: 'ignore',
    },
  )
  await eventually(async () => (await fetch(`${proxyUrl}/v1/account`)).status > 0)
})
afterAll(async () => {
  prism.kill('SIGKILL')
  await provider.stop()
})

async function through(operation: string, where: string, options: CallOptions = {}) {
  const [method = '', template = ''] = operation.split(' ')
  const answer = await call(proxyUrl, method, where, { key: key.api_key, ...options })
  expect(answer.headers.get('content-type'), JSON.stringify(answer.body)).toMatch(/^application\/json/)
  driven.add(`${method} ${template} ${answer.status}`)
  return answer
}

const submit = (slug: string, body: unknown, options: CallOptions = {}) =>
  through('POST /v1/models/{model}', `/v1/models/${slug}`, { body, ...options })
const status = (id: string, query = '') =>
  through('GET /v1/requests/{request_id}/status', `/v1/requests/${id}/status${query}`)
const result = (id: string) => through('GET /v1/requests/{request_id}', `/v1/requests/${id}`)

describe('through a validating proxy', () => {
  it('Prism reports a violation of the document', async () => {
    const answer = await call(proxyUrl, 'POST', '/v1/models/aurora-image', {
      key: key.api_key,
      body: { input: 'text' },
    })
    expect(answer.headers.get('content-type')).toContain('problem+json')
  })

  it('the catalog, a model, an estimate and the account conform to the document', async () => {
    const { body } = await through('GET /v1/models', '/v1/models')
    for (const { slug } of body.data) await through('GET /v1/models/{model}', `/v1/models/${slug}`)
    await through('GET /v1/models', '/v1/models?type=audio')
    await through('GET /v1/models/{model}', '/v1/models/no-such-model')
    const estimate = (slug: string, input: unknown) =>
      through('POST /v1/models/{model}/estimate', `/v1/models/${slug}/estimate`, { body: { input } })
    await estimate('aurora-image', { prompt: 'x' })
    await estimate('no-such-model', { prompt: 'x' })
    await estimate('aurora-image', { colour: 'red' })
    await through('GET /v1/account', '/v1/account')
  })

  it('generations of all types conform to the document in every state', async () => {
    const inputs = {
      'aurora-image-pro': { prompt: 'x', num_images: 4 },
      'meridian-text-to-video': { prompt: 'x' },
      'lyra-audio': { prompt: 'x' },
    }
    for (const [slug, input] of Object.entries(inputs)) {
      const { body } = await submit(slug, { input })
      expect((await status(body.request_id, '?logs=1')).body.status).toBe('COMPLETED')
      expect((await result(body.request_id)).status).toBe(200)
    }
    await setFaults(provider.deps, key.id, { slow_seconds: 600 })
    const { body: slow } = await submit('aurora-image', { input: { prompt: 'x' } })
    await eventually(async () => (await status(slow.request_id, '?logs=1')).body.status === 'IN_PROGRESS')
    expect((await result(slow.request_id)).status).toBe(202)
    const cancel = (id: string) => through('POST /v1/requests/{request_id}/cancel', `/v1/requests/${id}/cancel`)
    expect((await cancel(slow.request_id)).status).toBe(409)
    expect((await cancel(randomUUID())).status).toBe(404)
    await setFaults(provider.deps, key.id, { failed: 1 })
    const { body: failed } = await submit('aurora-image', { input: { prompt: 'x' } })
    await eventually(async () => (await result(failed.request_id)).body.status === 'FAILED')
    await setFaults(provider.deps, key.id, { canceled: 1 })
    const { body: canceled } = await submit('aurora-image', { input: { prompt: 'x' } })
    await eventually(async () => (await result(canceled.request_id)).body.status === 'CANCELED')
    await status(randomUUID())
    await result(randomUUID())
  })

  it('refusals of a submit conform to the document', async () => {
    const input = { prompt: 'x' }
    const keyed = { headers: { 'Idempotency-Key': randomUUID() } }
    expect((await submit('aurora-image', { input }, keyed)).status).toBe(200)
    expect((await submit('aurora-image', { input: { prompt: 'y' } }, keyed)).status).toBe(409)
    expect((await submit('aurora-image', { input, webhook_url: 'http://example.com/' })).status).toBe(400)
    expect((await submit('aurora-image', { input }, { key: live.api_key })).status).toBe(402)
    const reader = await provider.createKey({ scopes: ['read'] })
    expect((await submit('aurora-image', { input }, { key: reader.api_key })).status).toBe(403)
    expect((await submit('no-such-model', { input })).status).toBe(404)
    expect((await submit('aurora-image', { input: { colour: 'red' } })).status).toBe(422)
    expect((await submit('aurora-image', { input }, { key: 'service_test_wrong' })).status).toBe(401)
  })

  it('has driven every operation of the document', async () => {
    const { body: document } = await provider.call('GET', '/openapi.json')
    const operations = Object.entries<object>(document.paths).flatMap(([template, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${template}`),
    )
    const seen = new Set([...driven].map((line) => line.split(' ').slice(0, 2).join(' ')))
    expect(operations.filter((operation) => !seen.has(operation))).toEqual([])
  })
})

describe('the documentation', () => {
  it('is a page whose every asset comes from this server', async () => {
    const page = await provider.call('GET', '/docs')
    expect(page.status).toBe(200)
    expect(page.headers.get('content-security-policy')).toContain("default-src 'none'")
    const links = [...String(page.body).matchAll(/(?:src|href)="([^"]+)"/g)].map(([, link]) => link ?? '')
    expect(links.length).toBeGreaterThan(3)
    for (const link of links) {
      expect(link).toMatch(/^\/docs\//)
      expect((await provider.call('GET', link)).status).toBe(200)
    }
  })
})
