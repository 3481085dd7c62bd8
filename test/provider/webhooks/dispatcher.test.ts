import { randomUUID } from 'node:crypto'
import http from 'node:http'
import net from 'node:net'
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { createLogger } from '../../../src/platform/logger.ts'
import { createPoster } from '../../../src/platform/outward/poster.ts'
import { diallingOf } from '../../../src/platform/outward/public-url.ts'
import { timeOf } from '../../../src/platform/postgres/time.ts'
import { searchDeliveries } from '../../../src/provider/console/reads.ts'
import { createKey, openProvider } from '../../../src/provider/operating/commands.ts'
import { resendDelivery, showDelivery } from '../../../src/provider/webhooks/delivery-history.ts'
import { createDispatcher, type DispatcherDeps } from '../../../src/provider/webhooks/dispatcher.ts'
import { claimDue } from '../../../src/provider/webhooks/outbox-claims.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { verify } from '../../support/verify.ts'
import { moment } from '../support/time.ts'
import { startWebhookCatcher } from '../support/webhook-catcher.ts'

let database: TestDatabase
let provider: ReturnType<typeof openProvider>
let key: Awaited<ReturnType<typeof createKey>>
let now = new Date()
const cut = new AbortController()

beforeEach(async () => {
  database = await createTestDatabase()
  provider = openProvider({ databaseUrl: database.url, secretKey: Buffer.alloc(32, 7) })
  key = await createKey(provider.deps, { account: 'a', name: 'k', environment: 'sandbox' })
  now = new Date('2026-01-01T00:00:00Z')
})
afterEach(async () => {
  await provider.close()
  await database.drop()
})

async function catcher(answer?: Parameters<typeof startWebhookCatcher>[0]) {
  const started = await startWebhookCatcher(answer)
  onTestFinished(started.close)
  return started
}

async function deliver(url: string, faults: object | null = null): Promise<string> {
  const id = randomUUID()
  await database.sql`insert into provider.deliveries (id, request_id, account_id, api_key_id, url, host, body, state, due_at, faults, created_at)
    values (${id}, ${randomUUID()}, 'a', ${key.id}, ${url}, ${new URL(url).host}, ${`{"n":"${id} ü"}`}, 'pending', ${now}, ${database.sql.json({ ...faults })}, ${now})`
  return id
}

function dispatcher(origins: string[], changes: Partial<DispatcherDeps> = {}, resolve = async () => ['127.0.0.1']) {
  const timeoutMs = changes.timeoutMs ?? 400
  const poster = createPoster({
    judge: (target) => diallingOf(target, origins),
    resolve,
    timeoutMs,
    connectionsPerHost: 8,
  })
  onTestFinished(poster.close)
  const dispatcher = createDispatcher(
    {
      db: provider.deps.db,
      secretKey: provider.deps.secretKey,
      poster,
      pauses: { baseMs: 30_000, capMs: 3_600_000 },
      timeoutMs,
      userAgent: 'test',
      time: timeOf(() => now),
      hostClock: () => now,
      random: () => 0.5,
      logger: createLogger('silent'),
      onFree: () => void runOnce().catch(() => {}),
      ...changes,
    },
    cut.signal,
  )
  // Rounds run one after the other, as in the provider's loop.
  let last: Promise<unknown> = Promise.resolve()
  const runOnce = () => {
    const round = last.then(dispatcher.runOnce)
    last = round.catch(() => {})
    return round
  }
  return { ...dispatcher, runOnce }
}

const recorded = (id: string, attempts: number) =>
  eventually(async () => {
    const [row] =
      await database.sql`select d.state, d.attempts, d.due_at, a.ok, a.http_status, a.detail from provider.deliveries d
      join provider.delivery_attempts a on a.delivery_id = d.id and a.number = ${attempts} where d.id = ${id}`
    return row
  })

describe('a delivery', () => {
  it("is tried six times with the spec's pauses, the same id and bytes, and a fresh t", async () => {
    const { origin, caught } = await catcher((_one, res) => void res.writeHead(500).end('broken'))
    const id = await deliver(`${origin}/hook`)
    const { runOnce } = dispatcher([origin])
    const pauses = [30, 60, 120, 240, 480]
    for (const [index, pauseSeconds] of pauses.entries()) {
      await runOnce()
      const row = await recorded(id, index + 1)
      expect(row).toMatchObject({ state: 'pending', ok: false, http_status: 500, detail: 'broken' })
      expect(row['due_at'].getTime() - now.getTime()).toBe(pauseSeconds * 1000)
      now = new Date(now.getTime() + pauseSeconds * 1000 - 1)
      await runOnce()
      expect(caught).toHaveLength(index + 1)
      now = new Date(now.getTime() + 1)
    }
    await runOnce()
    expect(await recorded(id, 6)).toMatchObject({ state: 'failed', attempts: 6 })
    now = new Date(now.getTime() + 7_200_000)
    await runOnce()
    expect(caught).toHaveLength(6)

    expect(new Set(caught.map(({ body }) => body.toString()))).toEqual(new Set([`{"n":"${id} ü"}`]))
    expect(new Set(caught.map(({ headers }) => headers['x-service-webhook-id']))).toEqual(new Set([id]))
    const times = caught.map(({ headers }) => Number(headers['x-service-timestamp']))
    expect(times.slice(1).map((time, index) => time - (times[index] ?? 0))).toEqual(pauses)
    for (const { headers, body } of caught) {
      const secrets = [{ name: 'k', signingSecret: key.signing_secret }]
      expect(
        verify(body, String(headers['x-service-signature']), secrets, Number(headers['x-service-timestamp'])),
      ).toMatchObject({
        ok: true,
      })
      expect(headers).toMatchObject({ 'content-type': 'application/json', 'user-agent': 'test' })
    }
  })

  it.each([
    [
      '302',
      (res: http.ServerResponse, origin: string) => void res.writeHead(302, { location: `${origin}/elsewhere` }).end(),
    ],
    ['199-less', (res: http.ServerResponse) => void res.writeHead(404).end()],
    ['no answer', () => {}],
    [
      'a body that drips for ever',
      (res: http.ServerResponse) => {
        res.writeHead(200)
        const drip = setInterval(() => res.write('.'), 20)
        res.on('close', () => clearInterval(drip))
      },
    ],
    ['a connection that breaks off', (res: http.ServerResponse) => void res.destroy()],
  ])('answered with %s has failed, and nothing is followed', async (_name, answer) => {
    const { origin, caught } = await catcher((_one, res) => answer(res, origin))
    const id = await deliver(`${origin}/hook`)
    await dispatcher([origin]).runOnce()
    expect(await recorded(id, 1)).toMatchObject({ state: 'pending', ok: false })
    expect(caught).toHaveLength(1)
  })

  it.each([200, 202, 204])('answered with %i is done', async (status) => {
    const { origin } = await catcher((_one, res) => void res.writeHead(status).end())
    const id = await deliver(`${origin}/hook`)
    await dispatcher([origin]).runOnce()
    expect(await recorded(id, 1)).toMatchObject({ state: 'delivered', ok: true, http_status: status })
  })

  it('is complete after 16 KiB of a longer answer', async () => {
    const { origin } = await catcher((_one, res) => {
      res.writeHead(200)
      const more = () => res.write('x'.repeat(4096), () => res.destroyed || setImmediate(more))
      more()
    })
    const id = await deliver(`${origin}/hook`)
    await dispatcher([origin]).runOnce()
    expect(await recorded(id, 1)).toMatchObject({ state: 'delivered', ok: true })
  })

  it('claimed by a process that died is taken over within 60 s with the same id and bytes', async () => {
    const { origin, caught } = await catcher()
    const id = await deliver(`${origin}/hook`)
    const request = { now: moment(now), leaseSeconds: 20, inFlight: [], walk: {} }
    expect((await claimDue(provider.deps.db, request)).claimed).toHaveLength(1)
    const { runOnce } = dispatcher([origin])
    await runOnce()
    expect(caught).toEqual([])
    now = new Date(now.getTime() + 30_000)
    await runOnce()
    expect(await recorded(id, 2)).toMatchObject({ state: 'delivered', attempts: 2 })
    expect(caught[0]?.headers['x-service-webhook-id']).toBe(id)
  })

  it('whose process died in the last attempt is given up, never tried a seventh time', async () => {
    const { origin, caught } = await catcher()
    const id = await deliver(`${origin}/hook`)
    await database.sql`update provider.deliveries set attempts = 6 where id = ${id}`
    await dispatcher([origin]).runOnce()
    const [row] = await database.sql`select state from provider.deliveries where id = ${id}`
    expect(row?.['state']).toBe('failed')
    expect(caught).toEqual([])
  })

  it("fails with that reason if its key's secret cannot be read", async () => {
    const { origin, caught } = await catcher()
    const id = await deliver(`${origin}/hook`)
    await dispatcher([origin], { secretKey: Buffer.alloc(32, 8) }).runOnce()
    expect((await recorded(id, 1))['detail']).toContain('signing secret')
    expect(caught).toEqual([])
  })
})

describe('a resend', () => {
  it('is one more attempt with the same id and bytes, even after the sixth', async () => {
    let status = 500
    const { origin, caught } = await catcher((_one, res) => void res.writeHead(status).end())
    const id = await deliver(`${origin}/hook`)
    await database.sql`update provider.deliveries set attempts = 5 where id = ${id}`
    const { runOnce } = dispatcher([origin])
    await runOnce()
    expect(await recorded(id, 6)).toMatchObject({ state: 'failed' })
    status = 200
    expect(await resendDelivery(provider.deps.db, id, moment(now))).toBe(true)
    await runOnce()
    expect(await recorded(id, 7)).toMatchObject({ state: 'delivered', ok: true })
    expect(caught.map(({ headers, body }) => `${headers['x-service-webhook-id']} ${body}`)).toEqual(
      Array(2).fill(`${id} {"n":"${id} ü"}`),
    )
    const detail = await showDelivery(provider.deps.db, id)
    expect(detail?.attempts.map(({ number, ok, http_status }) => [number, ok, http_status])).toEqual([
      [6, false, 500],
      [7, true, 200],
    ])
    expect((await searchDeliveries(provider.deps.db, { account: 'a' })).rows).toMatchObject([
      { id, standing: 'delivered' },
    ])
  })

  it('is refused while an attempt is in progress, and for an unknown delivery', async () => {
    const id = await deliver('https://hooks.example.com/')
    expect(await resendDelivery(provider.deps.db, id, moment(now))).toBe(false)
    expect(await resendDelivery(provider.deps.db, randomUUID(), moment(now))).toBe(false)
  })
})

describe('the guard', () => {
  it('refuses a name when connecting, even if it was accepted at submit', async () => {
    const dialled: net.Socket[] = []
    const server = net.createServer((socket) => void dialled.push(socket)).listen(0, '127.0.0.1')
    onTestFinished(() => void server.close())
    const address = await eventually(() => server.address() ?? undefined)
    if (typeof address === 'string') throw new Error('no port')
    for (const [resolved, reason] of [
      [['127.0.0.1'], 'not public'],
      [['8.8.8.8', '127.0.0.1'], 'not public'],
      [[], 'does not resolve'],
    ] as const) {
      const id = await deliver(`https://rebind.example:${address.port}/`)
      // A round that starts itself could take the next delivery with this name's addresses.
      const { runOnce, drain } = dispatcher([], { onFree: () => {} }, async () => [...resolved])
      await runOnce()
      await drain()
      expect((await recorded(id, 1))['detail']).toContain(reason)
    }
    expect(dialled).toEqual([])
  })

  it('refuses an address literal, which is never resolved', async () => {
    for (const url of ['https://127.0.0.1:8443/', 'https://[::ffff:127.0.0.1]:8443/', 'http://127.0.0.1:8080/']) {
      const id = await deliver(url)
      const { runOnce, drain } = dispatcher([])
      await runOnce()
      await drain()
      expect((await recorded(id, 1))['detail']).toMatch(/^not sent: /)
    }
  })
})

describe('many deliveries', () => {
  it('go out in one tick, at most eight at a time to a host', async () => {
    let open = 0
    let most = 0
    const { origin, caught } = await catcher((_one, res) => {
      open += 1
      most = Math.max(most, open)
      setTimeout(() => {
        open -= 1
        res.end()
      }, 5)
    })
    for (let i = 0; i < 100; i += 1) await deliver(`${origin}/hook`)
    await dispatcher([origin]).runOnce()
    await eventually(() => caught.length === 100)
    expect(most).toBeGreaterThan(1)
    expect(most).toBeLessThanOrEqual(8)
  })

  it('are found in the same tick behind 250 hosts without due deliveries', async () => {
    const { origin, caught } = await catcher()
    const later = new Date(now.getTime() + 1000)
    await database.sql`insert into provider.deliveries (id, account_id, api_key_id, url, host, body, state, due_at, created_at)
      select gen_random_uuid(), 'a', ${key.id}, 'https://h/', lpad(h::text, 5, '0'), '{}', 'pending', ${later}, ${now}
      from generate_series(1, 250) h`
    await deliver(`${origin}/hook`)
    await dispatcher([origin]).runOnce()
    await eventually(() => caught.length === 1)
  })

  it('to a host that never answers do not delay other accounts', async () => {
    const slow = await catcher(() => {})
    const quick = await catcher()
    for (let i = 0; i < 60; i += 1) await deliver(`${slow.origin}/hook`)
    await deliver(`${quick.origin}/hook`)
    const { runOnce } = dispatcher([slow.origin, quick.origin], { timeoutMs: 5000 })
    await runOnce()
    await eventually(() => quick.caught.length === 1, 2000)
    await deliver(`${quick.origin}/hook`)
    await runOnce()
    await eventually(() => quick.caught.length === 2, 2000)
    expect(slow.caught.length).toBeLessThanOrEqual(8)
  })
})

describe('faults of a sandbox key', () => {
  it('duplicate sends the same delivery twice, bad_signature signs wrongly', async () => {
    const { origin, caught } = await catcher()
    const twice = await deliver(`${origin}/twice`, { duplicate: 1 })
    const wrong = await deliver(`${origin}/wrong`, { bad_signature: 1 })
    await dispatcher([origin]).runOnce()
    await recorded(twice, 1)
    await recorded(wrong, 1)
    const sent = (id: string) => caught.filter(({ headers }) => headers['x-service-webhook-id'] === id)
    expect(sent(twice)).toHaveLength(2)
    const [bad] = sent(wrong)
    const secrets = [{ name: 'k', signingSecret: key.signing_secret }]
    expect(
      verify(bad?.body ?? Buffer.alloc(0), String(bad?.headers['x-service-signature']), secrets, now.getTime() / 1000),
    ).toMatchObject({
      ok: false,
      cause: 'no_matching_secret',
    })
  })
})
