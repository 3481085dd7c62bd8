import { afterAll, beforeAll, expect, it } from 'vitest'
import { call, startTestProvider, type TestProvider } from '../support/running-provider.ts'

let provider: TestProvider
beforeAll(async () => {
  provider = await startTestProvider({})
  await provider.createKey({ account: 'desk' })
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

it.each(hostile)('the developer console answers %s in words, whatever it stands for', async (text) => {
  const amiss: unknown[] = []
  for (const path of [
    `/accounts/${text}`,
    `/accounts/desk?before=${text}`,
    `/requests?account=${text}`,
    `/requests?status=${text}`,
    `/requests?account[]=${text}`,
    `/requests/${text}`,
    `/deliveries/${text}`,
    `/keys/${text}/faults`,
  ]) {
    const { status, body } = await call(provider.consoleUrl, 'GET', path, { headers: html })
    if (status !== 200 && status !== 404 && status !== 400) amiss.push([path.slice(0, 60), status, body.slice(0, 100)])
  }
  for (const path of ['/keys', `/keys/${text}/revoke`, `/accounts/${text}/credits`, '/models', `/requests/${text}/cancel`]) {
    const fields = `account=${text}&name=${text}&environment=sandbox&scopes=read&credits=${text}&slug=${text}&enabled=true`
    const { status, body } = await call(provider.consoleUrl, 'POST', path, {
      rawBody: fields,
      headers: { ...html, 'content-type': 'application/x-www-form-urlencoded' },
    })
    if (status >= 500) amiss.push([path.slice(0, 60), status, body.slice(0, 100)])
  }
  expect(amiss).toEqual([])
})
