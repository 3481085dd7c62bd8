import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { call, startTestProvider, type TestProvider } from '../support/running-provider.ts'

const token = 'a-token-of-the-tests-that-is-long-enough'
let provider: TestProvider
let cookie: string

beforeAll(async () => {
  provider = await startTestProvider({
    consoleToken: token,
    internalTrustProxy: 'loopback',
    trustProxy: 0,
  })
  const signedIn = await post('/sign-in', { token, name: 'Ada' })
  cookie = signedIn.headers.get('set-cookie')?.split(';')[0] ?? ''
})
afterAll(() => provider.stop())

const post = (path: string, fields: Record<string, string>, headers: Record<string, string> = {}) =>
  call(provider.consoleUrl, 'POST', path, {
    rawBody: new URLSearchParams(fields).toString(),
    headers: {
      accept: 'text/html',
      'content-type': 'application/x-www-form-urlencoded',
      ...(cookie && { cookie }),
      ...headers,
    },
  })
const get = async (path: string) =>
  String((await call(provider.consoleUrl, 'GET', path, { headers: { accept: 'text/html', cookie } })).body)
const newest = async () => {
  const [row] = await provider.database
    .sql`select via, actor, action, target, detail from provider.audit order by id desc limit 1`
  return row
}

it('records each change that the console makes, with who made it', async () => {
  await post('/keys', { account: 'studio', name: 'web', environment: 'sandbox', scopes: 'generate' })
  const made = await newest()
  const id: string = made?.['detail'].id
  const detail = { id, account: 'studio', name: 'web', environment: 'sandbox', scopes: ['generate'] }
  expect(made).toEqual({ via: 'console', actor: 'Ada', action: 'key_create', target: 'studio', detail })

  const requestId = randomUUID()
  await provider.database.sql`
    insert into provider.requests (id, account_id, api_key_id, environment, model, input, cost, status, created_at)
    values (${requestId}, 'studio', ${id}, 'sandbox', 'aurora-image', '{}', 4, 'IN_PROGRESS', now())`
  const acts: [path: string, fields: Record<string, string>, row: object][] = [
    [
      '/accounts/studio/credits',
      { credits: '12.5' },
      { action: 'credits_grant', target: 'studio', detail: { credits: '12.5', balance: 12.5 } },
    ],
    [`/keys/${id}/faults`, { failed: '1' }, { action: 'faults_set', target: id, detail: { failed: 1 } }],
    [`/keys/${id}/faults`, { failed: '' }, { action: 'faults_clear', target: id, detail: {} }],
    [
      '/models',
      { slug: 'lyra-audio', environment: 'sandbox', enabled: 'false' },
      { action: 'model_disable', target: 'lyra-audio' },
    ],
    [
      '/models',
      { slug: 'lyra-audio', environment: 'sandbox', enabled: 'true' },
      { action: 'model_enable', detail: { environment: 'sandbox' } },
    ],
    [`/requests/${requestId}/cancel`, {}, { action: 'request_cancel', target: requestId, detail: {} }],
    [
      '/models/aurora-image/run',
      { key: id, 'input.prompt': 'a bay' },
      { action: 'generate', target: 'studio', detail: { key_id: id, cost: 4 } },
    ],
    [`/keys/${id}/revoke`, { account: 'studio' }, { action: 'key_revoke', target: id, detail: {} }],
  ]
  for (const [path, fields, row] of acts) {
    expect((await post(path, fields)).status, path).toBe(303)
    expect(await newest(), path).toMatchObject({ via: 'console', actor: 'Ada', ...row })
  }
  const texts = await provider.database.sql`select string_agg(audit::text, '') as all from provider.audit`
  expect(texts[0]?.['all']).not.toMatch(/service_test_|whsec_/)
})

it('records refused changes with their errors', async () => {
  const id = randomUUID()
  await post(`/keys/${id}/revoke`, { account: 'studio' })
  expect(await newest()).toMatchObject({ action: 'key_revoke', target: id, detail: { error: `there is no key ${id}` } })
})

it('records the address of an actor without a name, by INTERNAL_TRUST_PROXY and not by TRUST_PROXY', async () => {
  const headers = { authorization: `Bearer ${token}`, cookie: '', 'x-forwarded-for': '203.0.113.7' }
  expect((await post('/accounts/studio/credits', { credits: '1' }, headers)).status).toBe(303)
  expect(await newest()).toMatchObject({ actor: '203.0.113.7', action: 'credits_grant' })
})

it('shows the audit, newest first, and that of one account', async () => {
  await provider.createKey({ account: '<b>quoted</b>' })
  const all = await get('/audit')
  expect(all.indexOf('key_create')).toBeLessThan(all.indexOf('key_revoke'))
  expect(all).not.toContain('<b>quoted</b>')
  expect(all).toContain('cli')
  expect(all).toContain('scopes [&quot;generate&quot;,&quot;read&quot;]')
  const one = await get('/audit?target=studio')
  expect(one).toContain('credits_grant')
  expect(one).not.toContain('key_revoke')
})
