import { afterAll, beforeAll, expect, it } from 'vitest'
import { call, startTestProvider, type TestProvider } from '../support/running-provider.ts'

let provider: TestProvider
let key: Awaited<ReturnType<TestProvider['createKey']>>
beforeAll(async () => {
  provider = await startTestProvider({})
  key = await provider.createKey({ account: 'desk' })
})
afterAll(() => provider.stop())

const html = { accept: 'text/html' }
const hostile = [
  '%00',
  'a%00b',
  '%ED%A0%80',
  '%FF',
  'x'.repeat(8000),
  '99999999999999999999',
  '-1',
  '1.5',
  "'%20or%20true",
  '[]',
  '%E2%80%AE',
  '..%2f..',
  '1&before=2',
  'null',
]

it.each(hostile)('the developer console answers %s in words, in every field', async (text) => {
  const amiss: unknown[] = []
  const runs = [`/models/${text}/run`, '/models/aurora-image/run', '/models/aurora-image/estimate']
  for (const path of [
    `/accounts/${text}`,
    `/accounts/desk?before=${text}`,
    `/requests?account=${text}`,
    `/requests?status=${text}`,
    `/requests?model=${text}`,
    `/requests?environment=${text}`,
    `/requests?before=${text}`,
    `/requests?before=${text}_00000000-0000-4000-8000-000000000000`,
    `/requests?q=${text}`,
    `/requests?account[]=${text}`,
    `/requests/${text}`,
    `/deliveries/${text}`,
    `/keys/${text}/faults`,
    `/models/${text}`,
    `/models/aurora-image?like=${text}&key=${text}`,
    `/requests/${text}/now`,
  ]) {
    const { status, body } = await call(provider.consoleUrl, 'GET', path, { headers: html })
    if (status !== 200 && status !== 404 && status !== 400) amiss.push([path.slice(0, 60), status, body.slice(0, 100)])
  }
  for (const path of [
    '/keys',
    `/keys/${text}/revoke`,
    `/accounts/${text}/credits`,
    '/models',
    `/requests/${text}/cancel`,
    ...runs,
  ]) {
    const input = `key=${key.id}&idempotency_key=${text}&input.prompt=${text}&input.aspect_ratio=1:1&webhook_url=${text}`
    const fields = `${input}&account=${text}&name=${text}&environment=sandbox&scopes=read&credits=${text}&slug=${text}&enabled=true`
    const { status, body } = await call(provider.consoleUrl, 'POST', path, {
      rawBody: fields,
      headers: { ...html, 'content-type': 'application/x-www-form-urlencoded' },
    })
    if (status >= 500) amiss.push([path.slice(0, 60), status, body.slice(0, 100)])
  }
  expect(amiss).toEqual([])
})
