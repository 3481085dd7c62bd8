import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { createSessions } from '../../../src/platform/pages/sessions.ts'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { sessions as providerSessionsTable } from '../../../src/provider/domain/console-schema.ts'
import { sessions as sessionsTable } from '../../../src/receiver/domain/on-call-schema.ts'
import { withTestDatabase, type TestDatabase, usualServers } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { watchedLogger } from '../support/watched-logger.ts'
import { startGuarded } from './support/access-server.ts'

const token = 'a-token-of-at-least-32-characters-aaaa'

async function signIn(url: string, headers: Record<string, string> = {}, given = token) {
  const answer = await fetch(`${url}/sign-in`, {
    method: 'POST',
    redirect: 'manual',
    headers,
    body: new URLSearchParams({ token: given, name: 'Ada' }),
  })
  return {
    status: answer.status,
    headers: answer.headers,
    cookie: answer.headers.get('set-cookie')?.split(';', 1)[0] ?? '',
    text: await answer.text(),
  }
}
const status = async (url: string, headers: Record<string, string>) => (await fetch(`${url}/page`, { headers })).status
const signOut = (url: string, cookie: string) =>
  fetch(`${url}/sign-out`, { method: 'POST', redirect: 'manual', headers: { cookie } })

describe.each(usualServers)('a session, on the %s server', (server) => {
  it.each([
    ['mediadock', sessionsTable],
    ['provider', providerSessionsTable],
  ] as const)('of the console of %s ends with the sign-out, on every replica', async (_schema, sessionsTable) => {
    const { url: databaseUrl } = await withTestDatabase(server)
    const [here, there] = [
      await startGuarded({ databaseUrl, token, sessionsTable }),
      await startGuarded({ databaseUrl, token, sessionsTable }),
    ]
    const { cookie } = await signIn(here.url)
    // At once: a balancer sends the very next call to another replica.
    expect(await status(there.url, { cookie })).toBe(200)
    expect(await status(here.url, { cookie })).toBe(200)
    expect((await signOut(here.url, cookie)).status).toBe(303)
    expect(await status(here.url, { cookie })).toBe(401)
    await eventually(async () => (await status(there.url, { cookie })) === 401)
  })

  it('ends with its token, and the table contains nothing that opens a session', async () => {
    const { url: databaseUrl, sql } = await withTestDatabase(server)
    const before = await startGuarded({ databaseUrl, token })
    const { cookie } = await signIn(before.url)
    const after = await startGuarded({ databaseUrl, token: `${token}-rotated` })
    expect(await status(after.url, { cookie })).toBe(401)
    const [row] = await sql`select * from mediadock.sessions`
    expect(JSON.stringify(row)).not.toContain(cookie.split('=')[1])
    expect(await status(before.url, { cookie: `mediadock_session=${row?.['id']}` })).toBe(401)
  })

  it('are bounded: the oldest ends when another is opened', async () => {
    const { url: databaseUrl, sql } = await withTestDatabase(server)
    const { url } = await startGuarded({ databaseUrl, token })
    const { cookie } = await signIn(url)
    await sql`insert into mediadock.sessions select md5(n::text), '', now() + interval '13 hours' from generate_series(1, 3000) n`
    const newest = await signIn(url)
    expect(await sql`select count(*)::int as n from mediadock.sessions`).toEqual([{ n: 1000 }])
    await eventually(async () => (await status(url, { cookie })) === 401)
    expect(newest.status).toBe(303)
  })

  it('asks Postgres a few times a second, regardless of the number of unknown cookies', async () => {
    const { url: databaseUrl } = await withTestDatabase(server)
    const pool = createPool({ url: databaseUrl, max: 2 })
    onTestFinished(() => pool.close())
    let reads = 0
    const db: typeof pool.db = Object.create(pool.db, {
      execute: { value: (...args: Parameters<typeof pool.db.execute>) => ((reads += 1), pool.db.execute(...args)) },
    })
    const sessions = createSessions({
      db,
      table: sessionsTable,
      token,
      clock: () => new Date(),
      logger: createLogger('silent'),
    })
    const began = performance.now()
    for (let round = 0; round < 10; round += 1) {
      await Promise.all(
        Array.from({ length: 200 }, (_, n) => sessions.find(Buffer.alloc(32, round * 200 + n).toString('base64url'))),
      )
    }
    expect(reads).toBeLessThanOrEqual(2 + (performance.now() - began) / 150)
  })
})

describe('while Postgres is away', () => {
  it('known sessions stay valid, and the bearer token works', async () => {
    const database: TestDatabase = await withTestDatabase()
    const { url } = await startGuarded({ databaseUrl: database.url, token })
    const { cookie } = await signIn(url)
    expect(await status(url, { cookie })).toBe(200)
    await database.sql`alter table mediadock.sessions rename to gone`
    const answers = new Set<number>()
    const until = performance.now() + 2500
    while (performance.now() < until) {
      answers.add(await status(url, { cookie }))
      await delay(50)
    }
    expect([...answers]).toEqual([200])
    expect(await status(url, { cookie: `mediadock_session=${'A'.repeat(43)}` })).toBe(503)
    expect(await status(url, { authorization: `Bearer ${token}` })).toBe(200)
    const refused = await signIn(url)
    expect([refused.status, refused.headers.get('retry-after'), refused.cookie]).toEqual([503, '5', ''])
  })
})

describe('guessing the token', () => {
  const from = (address: string) => ({ 'x-forwarded-for': address })
  const guess = (n: number) => ({ authorization: `Bearer ${token}${n}` })
  /** Stands still: all guesses fall into one minute. */
  const clock = () => new Date('2026-01-01T00:00:00Z')

  it.each([
    [
      'the bearer',
      async (url: string, n: number, address: string) =>
        fetch(`${url}/page`, { headers: { ...guess(n), ...from(address) } }),
    ],
    [
      'the form',
      async (url: string, n: number, address: string) =>
        fetch(`${url}/sign-in`, {
          method: 'POST',
          headers: from(address),
          body: new URLSearchParams({ token: `wrong ${n}` }),
        }),
    ],
  ])(
    'with %s: ten wrong ones a minute, then 429 until a minute later; the right one is always accepted',
    async (_how, attempt) => {
      let now = new Date('2026-01-01T00:00:00Z')
      const refused: string[] = []
      const { logger, lines } = watchedLogger()
      const database = await withTestDatabase()
      const { url } = await startGuarded({
        databaseUrl: database.url,
        token,
        clock: () => now,
        onRefused: (why) => refused.push(why),
        logger,
      })
      const { cookie } = await signIn(url, from('203.0.113.9'))
      const statuses: number[] = []
      for (let n = 0; n < 60; n += 1) statuses.push((await attempt(url, n, '203.0.113.9')).status)
      expect(statuses.slice(0, 10)).toEqual(Array.from({ length: 10 }, () => 401))
      expect(new Set(statuses.slice(10))).toEqual(new Set([429]))
      expect(refused.filter((why) => why === 'wrong_token')).toHaveLength(10)
      expect(refused.filter((why) => why === 'too_many_attempts')).toHaveLength(50)
      const logged = lines().flatMap((line) => (line.includes('wrong token') ? [JSON.parse(line)] : []))
      expect(logged).toMatchObject([
        ...Array.from({ length: 9 }, () => ({ msg: 'a wrong token was received', remote: '203.0.113.9' })),
        {
          msg: 'wrong tokens from this address are answered 429 until then; right tokens are accepted',
          remote: '203.0.113.9',
          until: '2026-01-01T00:01:00.000Z',
        },
      ])

      const late = await attempt(url, 1, '203.0.113.9')
      expect(Number(late.headers.get('retry-after'))).toBeGreaterThan(0)
      expect(Number(late.headers.get('retry-after'))).toBeLessThanOrEqual(60)
      expect(await status(url, { authorization: `Bearer ${token}`, ...from('203.0.113.9') })).toBe(200)
      expect((await signIn(url, from('203.0.113.9'))).status).toBe(303)
      expect(await status(url, { cookie, ...from('203.0.113.9') })).toBe(200)
      // A program that sends an old token with the cookie of a session is signed in all the same.
      expect(await status(url, { cookie, ...guess(1), ...from('203.0.113.9') })).toBe(200)
      expect(await status(url, { authorization: `Bearer ${token}`, ...from('203.0.113.10') })).toBe(200)
      expect((await signIn(url, from('203.0.113.10'))).status).toBe(303)

      now = new Date('2026-01-01T00:01:01Z')
      expect((await attempt(url, 1, '203.0.113.9')).status).toBe(401)
    },
  )

  it('from very many addresses is slowed too, and an address without failures may still sign in', async () => {
    const database = await withTestDatabase()
    const { url } = await startGuarded({ databaseUrl: database.url, token, clock })
    const tries = async (address: string) => [
      await status(url, { ...guess(1), ...from(address) }),
      await status(url, { ...guess(2), ...from(address) }),
    ]
    expect(await tries('198.51.100.1')).toEqual([401, 401])
    for (let n = 0; n < 100; n += 1) await status(url, { ...guess(n), ...from(`198.51.100.${n + 2}`) })
    expect(await tries('203.0.113.1')).toEqual([401, 429])
    expect(await status(url, { authorization: `Bearer ${token}`, ...from('203.0.113.2') })).toBe(200)
  })

  it('from one IPv6 network counts as one address', async () => {
    const database = await withTestDatabase()
    const { url } = await startGuarded({ databaseUrl: database.url, token, clock })
    const statuses: number[] = []
    for (let n = 0; n < 12; n += 1) statuses.push(await status(url, { ...guess(n), ...from(`2001:db8:0:1::${n + 1}`) }))
    expect(statuses.slice(10)).toEqual([429, 429])
    expect(await status(url, { ...guess(1), ...from('2001:db8:0:2::1') })).toBe(401)
  })

  it('in the form shows a browser an explanation', async () => {
    const database = await withTestDatabase()
    const { url } = await startGuarded({ databaseUrl: database.url, token, clock })
    for (let n = 0; n < 10; n += 1) await signIn(url, {}, 'wrong')
    const last = await signIn(url, { accept: 'text/html' }, 'wrong')
    expect(last.status).toBe(429)
    expect(last.text).toMatch(
      /Too many wrong tokens arrived in one minute: wrong tokens from this address are answered 429 for \d+ s; the right token is accepted\./,
    )
  })
})
