import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { setModelEnabled } from '../../../src/provider/operating/commands.ts'
import { call, startTestProvider, type TestProvider } from '../support/running-provider.ts'

let provider: TestProvider
beforeAll(async () => {
  provider = await startTestProvider()
})
afterAll(() => provider.stop())

const html = { accept: 'text/html' }
const get = (path: string) => call(provider.consoleUrl, 'GET', path, { headers: html })
const post = (path: string, fields: Record<string, string>, headers: Record<string, string> = {}) =>
  call(provider.consoleUrl, 'POST', path, {
    rawBody: new URLSearchParams(fields).toString(),
    headers: { ...html, 'content-type': 'application/x-www-form-urlencoded', ...headers },
  })
const requestsOf = (account: string) =>
  provider.database.sql`select id, cost, input, status from provider.requests where account_id = ${account}`
const balanceOf = async (key: string) => (await provider.call('GET', '/v1/account', { key })).body.balance.credits
const idempotencyKeyIn = (page: string) => /name="idempotency_key" value="([0-9a-f-]{36})"/.exec(page)?.[1] ?? ''

describe('the page of a model', () => {
  it('has a field for each member of its input_schema, with its limits and its default', async () => {
    await provider.createKey({ account: 'fields' })
    const { status, body } = await get('/models/meridian-text-to-video')
    expect(status).toBe(200)
    expect(body).toMatch(/<textarea[^>]*name="input\.prompt"[^>]*required/)
    expect(body).toMatch(
      /<select[^>]*name="input\.resolution"[^>]*>\s*<option\s*>480p<\/option>\s*<option selected>720p</,
    )
    expect(body).toMatch(/<input type="checkbox" value="true" id="input\.generate_audio"/)
    expect(body).toContain('One per line, at most 30.')
    expect((await get('/models/aurora-image-pro')).body).toMatch(
      /type="number"[^>]*name="input\.seed"[^>]*min="0" max="4294967295"/,
    )
    expect((await get('/models/nothing-such')).status).toBe(404)
  })

  it('estimates the same price as the API, and runs nothing', async () => {
    const key = await provider.createKey({ account: 'estimates', environment: 'live' })
    const given = { prompt: 'waves', duration: 8, resolution: '1080p', generate_audio: true }
    const { body } = await provider.call('POST', '/v1/models/meridian-text-to-video/estimate', {
      key: key.api_key,
      body: { input: given },
    })
    const page = await post('/models/meridian-text-to-video/estimate', {
      key: key.id,
      'input.prompt': 'waves',
      'input.duration': '8',
      'input.resolution': '1080p',
      'input.generate_audio': 'true',
    })
    expect([page.status, /id="estimate">([^<]+)</.exec(page.body)?.[1]]).toEqual([200, String(body.credits)])
    expect(page.body).toMatch(/name="input\.generate_audio"[^>]*checked/)
    expect(await requestsOf('estimates')).toHaveLength(0)
  })

  it('runs and charges once when a form is sent twice, and again with other values', async () => {
    const key = await provider.createKey({ account: 'runs', environment: 'live' })
    await provider.grant('runs', 100)
    const form = {
      key: key.id,
      idempotency_key: randomUUID(),
      'input.prompt': 'a reef\r\nat dawn',
      'input.aspect_ratio': '16:9',
    }
    const [first, second] = await Promise.all([
      post('/models/aurora-image/run', form),
      post('/models/aurora-image/run', form),
    ])
    const again = await post('/models/aurora-image/run', form)
    expect(again.status).toBe(303)
    // Of two forms sent at once, one may be answered that the other is being written.
    for (const { status } of [first, second]) expect([303, 409]).toContain(status)
    const made = await requestsOf('runs')
    expect(made).toHaveLength(1)
    expect(again.headers.get('location')).toBe(`/requests/${made[0]?.['id']}`)
    expect(made[0]?.['input']).toEqual({ prompt: 'a reef\nat dawn', aspect_ratio: '16:9' })
    expect(await balanceOf(key.api_key)).toBe(96)

    const changed = await post('/models/aurora-image/run', { ...form, 'input.prompt': 'a wreck' })
    expect([changed.status, changed.body.includes('was run before')]).toEqual([409, true])
    const fresh = idempotencyKeyIn(changed.body)
    expect(fresh).not.toBe(form.idempotency_key)
    expect(
      (await post('/models/aurora-image/run', { ...form, 'input.prompt': 'a wreck', idempotency_key: fresh })).status,
    ).toBe(303)
    expect(await requestsOf('runs')).toHaveLength(2)
  })

  it("shows the API's error, keeps the values, and creates nothing", async () => {
    const key = await provider.createKey({ account: 'wrong', environment: 'live' })
    const page = await post('/models/aurora-image-pro/run', {
      key: key.id,
      'input.prompt': '',
      'input.seed': '-4',
      'input.aspect_ratio': '<b>',
    })
    expect(page.status).toBe(422)
    expect(page.body).toContain('role="alert">input.prompt is required.<')
    expect(page.body).toContain('value="-4"')
    expect(page.body).not.toContain('<b></option>')
    const hooked = await post('/models/aurora-image/run', {
      key: key.id,
      'input.prompt': 'x',
      webhook_url: 'http://127.0.0.1/',
    })
    expect([hooked.status, hooked.body.includes('role="alert">webhook_url must')]).toEqual([400, true])
    const poor = await post('/models/aurora-image/run', { key: key.id, 'input.prompt': 'x' })
    expect([poor.status, poor.body.includes('balance is too low')]).toEqual([402, true])
    expect(await requestsOf('wrong')).toHaveLength(0)
  })

  it('refuses a key that is revoked or may not submit, and a model that is switched off', async () => {
    const reader = await provider.createKey({ account: 'barred', scopes: ['read'] })
    expect((await post('/models/aurora-image/run', { key: reader.id, 'input.prompt': 'x' })).status).toBe(403)
    const key = await provider.createKey({ account: 'barred' })
    const form = { key: key.id, 'input.prompt': 'x' }
    await setModelEnabled(provider.deps, { slug: 'aurora-image', environment: 'sandbox', enabled: false })
    expect((await post('/models/aurora-image/run', form)).status).toBe(404)
    await setModelEnabled(provider.deps, { slug: 'aurora-image', environment: 'sandbox', enabled: true })
    await post(`/keys/${key.id}/revoke`, { account: 'barred' })
    expect((await post('/models/aurora-image/run', form)).status).toBe(400)
    expect(await requestsOf('barred')).toHaveLength(0)
  })

  it('offers the requested key even among many, and does not replace a missing one', async () => {
    const live = await provider.createKey({ account: 'older', environment: 'live' })
    const sandbox = await provider.createKey({ account: 'newer' })
    await provider.database.sql`
      insert into provider.api_keys (id, account_id, name, environment, scopes, key_hash, key_hint, signing_secret, created_at)
      select gen_random_uuid(), 'newer', 'n' || n, environment, scopes, sha256(convert_to('h' || environment || n, 'UTF8')), 'hint', signing_secret, now() + interval '1 h'
      from provider.api_keys, generate_series(1, 251) n where id in (${live.id}, ${sandbox.id})`
    const page = (await get(`/models/aurora-image?key=${live.id}`)).body
    expect(page).toMatch(new RegExp(`value="${live.id}" selected`))
    expect(page).toContain('These are the newest keys')
    expect(page.match(/· (?:live|sandbox) \(…/g)).toHaveLength(500)
    // The page of the account lists all keys.
    const listed: string[] = []
    for (let path: string | undefined = '/accounts/newer'; path !== undefined;) {
      const { body } = await get(path)
      listed.push(...[...body.matchAll(/href="\/keys\/([0-9a-f-]{36})\/revoke"/g)].map(([, id]) => id ?? ''))
      path = /href="(\/accounts\/newer\?[^"]+)" rel="next"/.exec(body)?.[1]?.replaceAll('&amp;', '&')
      expect(body.match(/\/revoke"/g)?.length).toBeLessThanOrEqual(100)
    }
    expect([listed.length, new Set(listed).size, listed.at(-1)]).toEqual([503, 503, sandbox.id])
    const estimated = await post('/models/aurora-image/estimate', { key: live.id, 'input.prompt': 'x' })
    expect(estimated.body).toContain('has 0 credits to spend')
    await post(`/keys/${live.id}/revoke`, { account: 'older' })
    const gone = (await get(`/models/aurora-image?key=${live.id}`)).body
    expect(gone).toMatch(/<option value="" selected>that key is not available: choose another/)
    await provider.database.sql`delete from provider.api_keys where key_hint = 'hint'`
  })

  it('refuses forms of other sites, and accepts a prompt as long as the API accepts', async () => {
    const key = await provider.createKey({ account: 'foreign' })
    const form = { key: key.id, 'input.prompt': '🐚'.repeat(30_000) }
    const foreign = { origin: 'https://evil.example' }
    expect((await post('/models/meridian-text-to-video/run', form, foreign)).status).toBe(403)
    expect(await requestsOf('foreign')).toHaveLength(0)
    expect((await post('/models/meridian-text-to-video/run', form)).status).toBe(303)
  })

  it("starts with another request's input, and a request's page stops refreshing at its end", async () => {
    const key = await provider.createKey({ account: 'like' })
    await post(`/keys/${key.id}/faults`, { slow_seconds: '600' })
    const { body } = await provider.call('POST', '/v1/models/aurora-image', {
      key: key.api_key,
      body: { input: { prompt: 'one "more"' }, webhook_url: 'https://hooks.example.com/like' },
    })
    const path = `/requests/${body.request_id}`
    const running = (await get(path)).body
    expect(running).toContain(`hx-get="${path}/now"`)
    expect(running).toContain(`/models/aurora-image?like=${body.request_id}&key=${key.id}`)
    const like = (await get(`/models/aurora-image?like=${body.request_id}`)).body
    expect(like).toMatch(/one &quot;more&quot;<\/textarea>[^]*value="https:\/\/hooks\.example\.com\/like"/)
    expect((await get(`${path}/now`)).body).toMatch(/hx-get[^]*as of <time datetime="2/)
    await post(`${path}/cancel`, {})
    const ended = (await get(`${path}/now`)).body
    expect([ended.includes('hx-get'), ended.includes('CANCELED')]).toEqual([false, true])
  })
})
