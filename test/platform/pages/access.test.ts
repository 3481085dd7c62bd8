import { once } from 'node:events'
import http from 'node:http'
import net from 'node:net'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { boundConnections } from '../../../src/platform/http/connections.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { startGuarded } from './support/access-server.ts'

let database: TestDatabase
beforeAll(async () => {
  database = await createTestDatabase()
})
afterAll(() => database.drop())

const token = 'a-token-of-at-least-32-characters-aaaa'
const browser = { accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8' }

type Answer = { status: number; headers: http.IncomingHttpHeaders; text: string }
type Call = { method?: string; path?: string; headers?: http.OutgoingHttpHeaders; body?: string }

/** With node's own client, which sends any Host and Origin that it is given. */
async function call(url: string, { method = 'GET', path = '/page', headers = {}, body }: Call = {}): Promise<Answer> {
  const { hostname, port } = new URL(url)
  const { promise, resolve, reject } = Promise.withResolvers<Answer>()
  const request = http.request({ hostname, port, method, path, headers, agent: false }, (response) => {
    let text = ''
    response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk))
    response.on('end', () => resolve({ status: response.statusCode ?? 0, headers: response.headers, text }))
  })
  request.on('error', reject).end(body)
  return promise
}

function signIn(url: string, fields: Record<string, string>, headers: http.OutgoingHttpHeaders = {}) {
  const body = new URLSearchParams(fields).toString()
  return call(url, {
    method: 'POST',
    path: '/sign-in',
    headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers },
    body,
  })
}

/** The Set-Cookie header, and its `name=value`. */
function cookieOf({ headers }: Answer): { whole: string; pair: string } {
  const [whole = ''] = headers['set-cookie'] ?? []
  return { whole, pair: whole.split(';', 1)[0] ?? '' }
}

describe('with a token', () => {
  it('a program is admitted with the bearer token, and gets a 401 envelope without', async () => {
    const { url } = await startGuarded({ databaseUrl: database.url, token })
    expect(await call(url, { headers: { authorization: `Bearer ${token}` } })).toMatchObject({
      status: 200,
      text: 'inside',
    })
    expect(await call(url, { headers: { authorization: `bearer ${token}` } })).toMatchObject({ status: 200 })
    for (const authorization of [
      '',
      'Bearer',
      'Bearer ',
      `Bearer ${token}x`,
      `Bearer ${token.slice(1)}`,
      `Basic ${token}`,
      token,
      `Key ${token}`,
    ]) {
      const refused = await call(url, { headers: { authorization, accept: '*/*' } })
      expect(refused.status).toBe(401)
      expect(JSON.parse(refused.text)).toEqual({
        error: { type: 'invalid_request_error', code: 'unauthorized', message: expect.any(String) },
      })
    }
    expect(await call(url, { method: 'POST', path: '/action' })).toMatchObject({ status: 401 })
  })

  it('a browser gets the sign-in form with a 401 and no content of the page', async () => {
    const { url } = await startGuarded({ databaseUrl: database.url, token })
    const refused = await call(url, { headers: browser, path: '/page?filter=%22%3E%3Cb%3E' })
    expect(refused.status).toBe(401)
    expect(refused.headers['content-type']).toMatch(/^text\/html/)
    expect(refused.text).toMatch(/<form class="sign-in" method="post" action="\/sign-in">/)
    expect(refused.text).toContain('name="next" value="/page?filter=%22%3E%3Cb%3E"')
    expect(refused.text).not.toContain('inside')
    expect(refused.text).not.toContain(token)
    expect(refused.headers['set-cookie']).toBeUndefined()
  })

  it('the form opens a session: HttpOnly, SameSite=Strict, no Secure on plain http', async () => {
    const { url } = await startGuarded({ databaseUrl: database.url, token })
    const signedIn = await signIn(url, { token, next: '/page?a=b' })
    expect(signedIn).toMatchObject({ status: 303, headers: { location: '/page?a=b' } })
    const { whole, pair } = cookieOf(signedIn)
    expect(whole).toMatch(
      /^mediadock_session=[\w-]{43}; Max-Age=43200; Path=\/; Expires=[^;]+; HttpOnly; SameSite=Strict$/,
    )
    expect(whole).not.toContain(token)
    expect(await call(url, { headers: { ...browser, cookie: `other=1; ${pair}; more=%` } })).toMatchObject({
      status: 200,
      text: 'inside',
    })
  })

  it('a client with many open connections displaces no authenticated connection', async () => {
    const { url, port, server } = await startGuarded({ databaseUrl: database.url, token })
    boundConnections(server, { max: 3 })
    const connect = async () => {
      const socket = net.connect(port, '127.0.0.1').on('error', () => {})
      onTestFinished(() => void socket.destroy())
      await once(socket, 'connect')
      return socket
    }
    const ours = await connect()
    ours.write(`GET /page HTTP/1.1\r\nhost: ${new URL(url).host}\r\nauthorization: Bearer ${token}\r\n\r\n`)
    await once(ours, 'data')
    const idle = [await connect(), await connect(), await connect(), await connect()]
    await eventually(() => idle[0]?.destroyed === true && idle[1]?.destroyed === true)
    expect([ours, idle[2], idle[3]].map((one) => one?.destroyed)).toEqual([false, false, false])
  })

  it('the name from the sign-in is the actor; without one, or with the bearer token, the address is', async () => {
    const { url } = await startGuarded({ databaseUrl: database.url, token })
    const who = async (headers: http.OutgoingHttpHeaders) => (await call(url, { path: '/who', headers })).text
    for (const name of ['Zoë O’Brien; <b>', '夜勤', 'x'.repeat(64)]) {
      const { pair } = cookieOf(await signIn(url, { token, name: ` ${name} ` }))
      expect(pair).toMatch(/^mediadock_session=[\w-]{43}$/)
      expect(await who({ cookie: pair })).toBe(name)
    }
    expect(await who({ cookie: cookieOf(await signIn(url, { token, name: '  ' })).pair })).toBe('127.0.0.1')
    expect(await who({ authorization: `Bearer ${token}` })).toBe('127.0.0.1')
    expect(await who({ authorization: `Bearer ${token}`, 'x-forwarded-for': '203.0.113.9' })).toBe('203.0.113.9')
  })

  it.each([
    ['too long', 'x'.repeat(65)],
    ['with a line break', 'a\nb'],
    ['that turns the text around', 'a\u202eb'],
    ['with NUL', 'a\0b'],
  ])('a name %s: the form again, no cookie', async (_what, name) => {
    const { url } = await startGuarded({ databaseUrl: database.url, token })
    const refused = await signIn(url, { token, name })
    expect(refused).toMatchObject({ status: 401, text: expect.stringContaining('at most 64 printable') })
    expect(refused.headers['set-cookie']).toBeUndefined()
  })

  it('the cookie is Secure behind TLS', async () => {
    const { url } = await startGuarded({ databaseUrl: database.url, token })
    expect(cookieOf(await signIn(url, { token }, { 'x-forwarded-proto': 'https' })).whole).toMatch(
      /; HttpOnly; Secure; SameSite=Strict$/,
    )
  })

  it.each([
    ['a wrong token', { token: `${token}x` }],
    ['no token', {}],
    ['an empty one', { token: '' }],
  ])('%s in the form: the form again, 401, no cookie', async (_what, fields) => {
    const { url } = await startGuarded({ databaseUrl: database.url, token })
    const refused = await signIn(url, fields)
    expect(refused).toMatchObject({ status: 401, text: expect.stringContaining('role="alert"') })
    expect(refused.headers['set-cookie']).toBeUndefined()
  })

  it('a form that cannot be read is refused as the sender’s mistake', async () => {
    const { url } = await startGuarded({ databaseUrl: database.url, token })
    const large = await signIn(url, { token: 'x'.repeat(70_000) })
    expect(large.status).toBe(400)
    expect(JSON.parse(large.text)).toMatchObject({ error: { code: 'invalid_form' } })
    expect((await signIn(url, { token }, { 'content-type': 'application/json' })).status).toBe(401)
    expect((await signIn(url, { token }, { 'content-encoding': 'gzip' })).status).toBe(400)
    const twice = await call(url, {
      method: 'POST',
      path: '/sign-in',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: `token=${token}&token=${token}`,
    })
    expect(twice.status).toBe(401)
  })

  it.each([
    'https://evil.example/',
    '//evil.example',
    '/\\evil.example',
    '\\\\evil.example',
    '/\t/evil.example',
    '/\n/evil.example',
    '/\r\n/evil.example',
    'javascript:alert(1)',
    'page',
    '',
  ])('the sign-in never redirects to another host: %j', async (next) => {
    const { url } = await startGuarded({ databaseUrl: database.url, token })
    const signedIn = await signIn(url, { token, next })
    expect(signedIn.status).toBe(303)
    // As a browser resolves it.
    expect(new URL(signedIn.headers.location ?? '', url).origin).toBe(url)
  })

  it('a session ends after twelve hours', async () => {
    let now = new Date('2026-01-01T00:00:00Z')
    const { url } = await startGuarded({ databaseUrl: database.url, token, clock: () => now })
    const { pair } = cookieOf(await signIn(url, { token }))
    now = new Date('2026-01-01T11:59:59Z')
    expect((await call(url, { headers: { cookie: pair } })).status).toBe(200)
    now = new Date('2026-01-01T12:00:00Z')
    expect((await call(url, { headers: { cookie: pair } })).status).toBe(401)
  })

  it('a forged session is refused', async () => {
    const { url } = await startGuarded({ databaseUrl: database.url, token })
    const { pair } = cookieOf(await signIn(url, { token, name: 'Ada' }))
    const [name, value = ''] = pair.split('=')
    const stranger = await startGuarded({ databaseUrl: database.url, token: `${token}-of-another` })
    const strangers = cookieOf(await signIn(stranger.url, { token: `${token}-of-another`, name: 'Ada' })).pair
    const [row] = await database.sql`select id from mediadock.sessions order by expires_at desc limit 1`
    const forged = [
      `${name}=${value.slice(1)}`,
      `${name}=${value}a`,
      `${name}=${value.replace(/^./, (first) => (first === 'A' ? 'B' : 'A'))}`,
      `${name}=${row?.['id']}`,
      `${name}=`,
      `${name}=%`,
      `${name}=%E0%A4%A`,
      `${name}=' or true --`,
      `provider_session=${value}`,
      strangers,
    ]
    for (const cookie of forged)
      expect({ cookie, status: (await call(url, { headers: { cookie } })).status }).toEqual({ cookie, status: 401 })
    expect((await call(url, { headers: { cookie: pair } })).status).toBe(200)
  })

  it('signing out removes the cookie', async () => {
    const { url } = await startGuarded({ databaseUrl: database.url, token })
    const { pair } = cookieOf(await signIn(url, { token }))
    const out = await call(url, { method: 'POST', path: '/sign-out', headers: { cookie: pair } })
    expect(out).toMatchObject({ status: 303, headers: { location: '/' } })
    expect(cookieOf(out).whole).toMatch(/^mediadock_session=; Max-Age=0; /)
    expect((await call(url, { headers: { cookie: pair } })).status).toBe(401)
  })

  it('any Host is accepted, because the token protects', async () => {
    const { url } = await startGuarded({ databaseUrl: database.url, token })
    expect(
      (await call(url, { headers: { host: 'mediadock.internal', authorization: `Bearer ${token}` } })).status,
    ).toBe(200)
  })
})

describe('without a token', () => {
  it.each([
    '127.0.0.1',
    '127.0.0.1:3001',
    '127.1.2.3',
    'localhost',
    'localhost:3001',
    'LOCALHOST',
    '[::1]',
    '[::1]:3001',
  ])('answers to %s', async (host) => {
    const { url } = await startGuarded({ databaseUrl: database.url })
    expect(await call(url, { headers: { host } })).toMatchObject({ status: 200, text: 'inside' })
  })

  it.each([
    'evil.example',
    'evil.example:3001',
    '127.evil.example',
    '127.0.0.1.evil.example',
    'localhost.evil.example',
    '10.0.0.1',
    '0.0.0.0',
    '[::2]',
    'user@127.0.0.1:x',
    'a b',
  ])('a page that rebinds %s to loopback gets no data', async (host) => {
    const { url } = await startGuarded({ databaseUrl: database.url })
    const refused = await call(url, { headers: { host } })
    expect(refused.status).toBe(403)
    expect(JSON.parse(refused.text)).toMatchObject({ error: { code: 'host_not_allowed' } })
  })
})

describe.each([
  ['with a token', token],
  ['without one', undefined],
])('actions %s', (_what, given) => {
  const guarded = () => startGuarded({ databaseUrl: database.url, ...(given !== undefined && { token: given }) })
  const authorization = `Bearer ${given}`

  it.each([
    ['another site by Sec-Fetch-Site', { 'sec-fetch-site': 'cross-site' }],
    ['a sibling by Sec-Fetch-Site', { 'sec-fetch-site': 'same-site' }],
    ['another origin', { origin: 'https://evil.example' }],
    ['another port of this host', { origin: 'http://127.0.0.1:1' }],
    ['an opaque origin', { origin: 'null' }],
    ['an invalid origin', { origin: 'nonsense' }],
  ])('from %s are refused', async (_from, headers) => {
    const { url } = await guarded()
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
      const refused = await call(url, { method, path: '/action', headers: { authorization, ...headers } })
      expect(refused.status).toBe(403)
      expect(JSON.parse(refused.text)).toMatchObject({ error: { code: 'cross_origin' } })
    }
    expect((await call(url, { headers: { authorization, ...headers } })).status).toBe(200)
  })

  it('from the console itself, the address bar and programs are accepted', async () => {
    const { url, port } = await guarded()
    const host = `127.0.0.1:${port}`
    for (const headers of [
      {},
      { origin: `http://${host}` },
      { 'sec-fetch-site': 'same-origin', origin: `http://${host}` },
      { 'sec-fetch-site': 'none' },
    ])
      expect(
        await call(url, { method: 'POST', path: '/action', headers: { authorization, host, ...headers } }),
      ).toMatchObject({
        status: 200,
        text: 'done',
      })
  })
})

it('a sign-in from a foreign page is refused', async () => {
  const { url } = await startGuarded({ databaseUrl: database.url, token })
  const refused = await signIn(url, { token }, { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' })
  expect(refused.status).toBe(403)
  expect(refused.headers['set-cookie']).toBeUndefined()
})
