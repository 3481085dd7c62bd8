import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import http from 'node:http'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { startProvider } from '../../../src/provider/program.ts'
import { eventually } from '../../support/eventually.ts'
import { call, startTestProvider, type TestProvider } from '../support/running-provider.ts'
import { startWebhookCatcher } from '../support/webhook-catcher.ts'

let provider: TestProvider
let catcher: Awaited<ReturnType<typeof startWebhookCatcher>>
beforeAll(async () => {
  catcher = await startWebhookCatcher()
  provider = await startTestProvider({ webhookAllow: [catcher.origin] })
})
afterAll(async () => {
  await provider.stop()
  await catcher.close()
})

const html = { accept: 'text/html' }
const get = (path: string) => call(provider.consoleUrl, 'GET', path, { headers: html })
const post = (
  path: string,
  fields: Record<string, string> | URLSearchParams = {},
  headers: Record<string, string> = {},
) =>
  call(provider.consoleUrl, 'POST', path, {
    rawBody: new URLSearchParams(fields).toString(),
    headers: { ...html, 'content-type': 'application/x-www-form-urlencoded', ...headers },
  })
const shown = (page: string, id: string) => new RegExp(`id="${id}">([^<]+)<`).exec(page)?.[1] ?? ''

describe('the developer console', () => {
  it('links to the documentation of the API on the listener of the API', async () => {
    const [, link = ''] = /<a href="([^"]+)">API documentation</.exec((await get('/')).body) ?? []
    expect(link).toBe(`${provider.settings.baseUrl}/docs`)
    expect((await call(provider.url, 'GET', '/docs')).status).toBe(200)
  })

  it('creates a key, shows it once, and the key works until it is revoked', async () => {
    const created = await post(
      '/keys',
      new URLSearchParams('account=desk&name=first&environment=sandbox&scopes=generate&scopes=read'),
    )
    expect(created.status).toBe(200)
    const key = shown(created.body, 'api-key')
    expect(key).toMatch(/^service_test_/)
    expect(shown(created.body, 'signing-secret')).toMatch(/^whsec_/)
    expect((await provider.call('GET', '/v1/account', { key })).status).toBe(200)

    const account = await get('/accounts/desk')
    expect(account.body).not.toContain(key)
    const id = /\/keys\/([0-9a-f-]{36})\/revoke/.exec(account.body)?.[1] ?? ''
    expect((await post(`/keys/${id}/revoke`, { account: 'desk' })).headers.get('location')).toBe('/accounts/desk')
    expect((await provider.call('GET', '/v1/account', { key })).status).toBe(401)
  })

  it('creates one key from one form, even if the form is sent again', async () => {
    const id = /name="id" value="([0-9a-f-]{36})"/.exec((await get('/')).body)?.[1] ?? ''
    const form = new URLSearchParams({ id, account: 'reloads', name: 'once', environment: 'sandbox', scopes: 'read' })
    expect((await post('/keys', form)).status).toBe(200)
    const again = await post('/keys', form)
    expect(again.status).toBe(400)
    expect(again.body).toContain('this key exists already')
    expect((await get('/accounts/reloads')).body.split('/revoke"')).toHaveLength(2)
  })

  it('asks before it revokes a key, and names the environment', async () => {
    const key = await provider.createKey({ account: 'asked', environment: 'live' })
    const account = await get('/accounts/asked')
    expect(account.body).toContain(`href="/keys/${key.id}/revoke"`)
    const revoke = await get(`/keys/${key.id}/revoke`)
    expect(revoke.body).toContain('Revoke the live key')
    expect((await provider.call('GET', '/v1/account', { key: key.api_key })).status).toBe(200)
    expect((await get('/models/lyra-audio')).body.split('Switch off in')).toHaveLength(3)
    const form = { slug: 'lyra-audio', environment: 'live' }
    const switched = await post('/models', { ...form, enabled: 'false' })
    expect(switched.headers.get('location')).toBe('/models/lyra-audio')
    expect((await get('/models')).body).toMatch(/href="\/models\/lyra-audio"(?:(?!<\/tr>)[^])*off in live/)
    await post('/models', { ...form, enabled: 'true' })
  })

  it('grants credits, shows the ledger and checks it', async () => {
    await provider.createKey({ account: 'books and co', environment: 'live' })
    expect((await post('/accounts/books%20and%20co/credits', { credits: '12.5' })).headers.get('location')).toBe(
      '/accounts/books%20and%20co',
    )
    const page = await get('/accounts/books%20and%20co?tab=ledger')
    expect(page.body).toContain('<b>12.5</b>')
    expect(page.body).toMatch(/<b>0<[/]b> live requests, <b>0<[/]b> credits spent/)
    expect(page.body).toMatch(/grant<[^]*>available<[^]*>12\.5</)
    expect((await get('/ledger')).body).toContain('sums to zero')
    expect((await post('/accounts/books%20and%20co/credits', { credits: '-1' })).status).toBe(400)
    // A form that is sent twice grants credits once. With other values it is refused.
    const id =
      /name="id" value="([0-9a-f-]{36})" autocomplete/.exec(
        (await get('/accounts/books%20and%20co?tab=ledger')).body,
      )?.[1] ?? ''
    const grants = [1, 2, 3].map(async () => post('/accounts/twice/credits', { id, credits: '5' }))
    expect((await Promise.all(grants)).map(({ status }) => status)).toEqual([303, 303, 303])
    for (const [account, credits] of [
      ['twice', '6'],
      ['thrice', '5'],
    ] as const) {
      const again = await post(`/accounts/${account}/credits`, { id, credits })
      expect([again.status, again.body.includes('has granted other credits before')]).toEqual([400, true])
    }
    expect(
      await provider.database
        .sql`select available::float from provider.accounts where id in ('twice', 'thrice') order by 1`,
    ).toEqual([{ available: 0 }, { available: 5 }])
  })

  it('lists and cancels requests, and sets the faults of a sandbox key', async () => {
    const key = await provider.createKey({ account: 'slow' })
    expect((await post(`/keys/${key.id}/faults`, { slow_seconds: '600', failed: '' })).status).toBe(303)
    expect((await get(`/keys/${key.id}/faults`)).body).toContain('value="600"')
    const { body } = await provider.call('POST', '/v1/models/aurora-image', {
      key: key.api_key,
      body: { input: { prompt: '<script>alert(1)</script>' } },
    })
    const page = await get(`/requests/${body.request_id}`)
    expect(page.body).not.toContain('<script>alert')
    expect(page.body).toContain('&lt;script&gt;')
    expect((await get('/requests?account=slow&status=')).body).toContain(body.request_id)
    expect((await post(`/requests/${body.request_id}/cancel`)).status).toBe(303)
    expect((await get('/requests?status=CANCELED')).body).toContain(body.request_id)
    const again = await post(`/requests/${body.request_id}/cancel`)
    expect([again.status, again.body.includes('is already CANCELED')]).toEqual([400, true])
    await post(`/keys/${key.id}/faults`, { slow_seconds: '' })
    const quick = await provider.call('POST', '/v1/models/aurora-image', {
      key: key.api_key,
      body: { input: { prompt: 'x' } },
    })
    expect(quick.body.status).toBe('COMPLETED')
    expect((await get(`/requests/${quick.body.request_id}`)).body).toMatch(/ \(\d+\.\d s\)/)
  })

  it('shows the history of a delivery and sends it again with the same id and bytes', async () => {
    const key = await provider.createKey({ account: 'hooked' })
    const body = { input: { prompt: 'x' }, webhook_url: `${catcher.origin}/hook` }
    await provider.call('POST', '/v1/models/aurora-image', { key: key.api_key, body })
    const [first] = await eventually(() => (catcher.caught.length === 1 ? catcher.caught : undefined))
    const id = String(first?.headers['x-service-webhook-id'])
    await eventually(async () => (await get(`/deliveries/${id}`)).body.includes('badge good'))
    expect((await get('/deliveries')).body).toContain(id)
    expect((await post(`/deliveries/${id}/resend`)).status).toBe(303)
    const [, second] = await eventually(() => (catcher.caught.length === 2 ? catcher.caught : undefined))
    expect([second?.headers['x-service-webhook-id'], second?.body]).toEqual([id, first?.body])
    expect((await post(`/deliveries/${randomUUID()}/resend`)).status).toBe(409)
  })

  it('switches models on and off', async () => {
    const key = await provider.createKey()
    const has = async () => (await provider.call('GET', '/v1/models/lyra-audio', { key: key.api_key })).status
    expect(await has()).toBe(200)
    await post('/models', { slug: 'lyra-audio', environment: 'sandbox', enabled: 'false' })
    expect(await has()).toBe(404)
    expect((await get('/models/lyra-audio')).body).toContain('Switch on in sandbox')
    await post('/models', { slug: 'lyra-audio', environment: 'sandbox', enabled: 'true' })
    expect(await has()).toBe(200)
  })

  it.each([
    '/accounts/nobody',
    '/requests/not-a-uuid',
    `/requests/${randomUUID()}`,
    `/deliveries/${randomUUID()}`,
    `/keys/${randomUUID()}/faults`,
    '/nowhere',
  ])('answers %s with a 404 page', async (path) => {
    const answer = await get(path)
    expect(answer.status).toBe(404)
    expect(answer.body).toContain('role="alert"')
  })

  it('allows scripts only from its own files', async () => {
    const { headers } = await get('/')
    expect(headers.get('content-security-policy')).toContain("script-src 'self'")
    expect(headers.get('x-powered-by')).toBeNull()
  })
})

describe('access', () => {
  it('without a token accepts only names of loopback, and actions only from its own pages', async () => {
    const rebound = http.get(`${provider.consoleUrl}/`, { headers: { host: 'evil.example' } })
    const [answer] = await once(rebound, 'response')
    expect(answer.statusCode).toBe(403)
    answer.resume()
    const foreign = await post(
      '/models',
      { slug: 'lyra-audio', environment: 'sandbox', enabled: 'false' },
      { origin: 'https://evil.example' },
    )
    expect(foreign.status).toBe(403)
  })

  it('with a token answers 401, to browsers with the form, and accepts the token as bearer', async () => {
    const token = 't'.repeat(32)
    const guarded = await startProvider({
      settings: { ...provider.settings, port: 0, consolePort: 0, consoleToken: token },
      logger: createLogger('silent'),
    })
    try {
      const url = guarded.urls['developer console'] ?? ''
      const anonymous = await call(url, 'GET', '/', { headers: html })
      expect(anonymous.status).toBe(401)
      expect(anonymous.body).toContain('<form')
      expect((await call(url, 'GET', '/', { headers: { ...html, authorization: `Bearer ${token}` } })).status).toBe(200)
      expect((await call(url, 'GET', '/', { headers: { ...html, authorization: 'Bearer wrong' } })).status).toBe(401)
      const form = { ...html, 'content-type': 'application/x-www-form-urlencoded' }
      const signedIn = await call(url, 'POST', '/sign-in', {
        rawBody: new URLSearchParams({ token }).toString(),
        headers: form,
      })
      const cookie = signedIn.headers.get('set-cookie')?.split(';')[0] ?? ''
      expect((await call(url, 'GET', '/', { headers: { ...html, cookie } })).status).toBe(200)
    } finally {
      await guarded.stop(1000)
    }
  })
})
