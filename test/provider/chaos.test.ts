import { spawn, type ChildProcess } from 'node:child_process'
import { randomBytes, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import { checkLedger, createKey, grantCredits, openProvider } from '../../src/provider/operating/commands.ts'
import { long } from '../chaos/length.ts'
import { childEnv } from '../support/child-env.ts'
import { withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from './support/free-port.ts'
import { call } from './support/running-provider.ts'
import { startWebhookCatcher } from './support/webhook-catcher.ts'

const seconds = long ? 30 : 3

type Site = { port: number; child: ChildProcess | undefined }

it(
  `kill -9 of one of two providers every second for ${seconds} s loses nothing and charges nothing twice`,
  { timeout: seconds * 1000 + 120_000 },
  async () => {
    const database = await withTestDatabase()
    const catcher = await startWebhookCatcher()
    onTestFinished(catcher.close)
    const mediaDir = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-kill-'))
    const secretKey = randomBytes(32)
    const { deps, close } = openProvider({ databaseUrl: database.url, secretKey })
    onTestFinished(close)
    const env = {
      ...childEnv,
      DATABASE_URL: database.url,
      PROVIDER_CONSOLE_PORT: '0',
      PROVIDER_MEDIA_DIR: mediaDir,
      PROVIDER_SECRET_KEY: secretKey.toString('base64'),
      PROVIDER_WEBHOOK_ALLOW: catcher.origin,
      PROVIDER_DISPATCH_INTERVAL_MS: '200',
      PROVIDER_BACKOFF_BASE_MS: '200',
      PROVIDER_WEBHOOK_TIMEOUT_MS: '1000',
      PROVIDER_RATE_PER_KEY: '1000000',
      PROVIDER_RATE_PER_ACCOUNT: '1000000',
    }
    const script = fileURLToPath(import.meta.resolve('./support/provider-process.ts'))
    const boot = async (site: Site) => {
      site.child = spawn(process.execPath, [script], {
        env: { ...env, PROVIDER_PORT: String(site.port) },
        stdio: ['ignore', 'pipe', 'inherit'],
      })
      await once(site.child.stdout ?? expect.fail(), 'data')
    }
    const sites: Site[] = [
      { port: await freePort(), child: undefined },
      { port: await freePort(), child: undefined },
    ]
    onTestFinished(() => sites.forEach(({ child }) => child?.kill('SIGKILL')))
    await Promise.all(sites.map(boot))

    const keys = await Promise.all(['ebb', 'flow'].map((account) => createKey(deps, { account, name: 'k', environment: 'live' })))
    const sandbox = await createKey(deps, { account: 'ebb', name: 's', environment: 'sandbox' })
    for (const account of ['ebb', 'flow']) await grantCredits(deps, { account, credits: 30 * seconds + 0.5 })

    const accepted = new Map<string, string>()
    const unexpected: string[] = []
    const killing = new AbortController()
    // A client that gets no answer tries again, with the same key, wherever somebody answers.
    const submitUntilAnswered = async (key: string) => {
      const headers = { 'idempotency-key': randomUUID() }
      const body = { input: { prompt: randomUUID() }, webhook_url: `${catcher.origin}/hook` }
      for (let turn = 0; !killing.signal.aborted; turn += 1) {
        const url = `http://127.0.0.1:${sites[turn % 2]?.port}`
        const answer = await call(url, 'POST', '/v1/models/aurora-image', { key, body, headers }).catch(() => undefined)
        if (answer?.status === 200) return void accepted.set(headers['idempotency-key'], answer.body.request_id)
        if (answer?.status === 402) return
        if (answer && answer.status !== 409 && answer.status !== 503) unexpected.push(`${answer.status} ${JSON.stringify(answer.body)}`)
        await delay(20)
      }
    }
    const clients = Array.from({ length: 16 }, async (_, lane) => {
      const key = [keys[0], keys[1], keys[0], sandbox][lane % 4]?.api_key ?? ''
      while (!killing.signal.aborted) {
        await submitUntilAnswered(key)
        await delay(25)
      }
    })
    for (let second = 0; second < seconds; second += 1) {
      const victim = sites[second % 2] ?? expect.fail()
      const died = once(victim.child ?? expect.fail(), 'exit')
      victim.child?.kill('SIGKILL')
      await died
      await Promise.all([boot(victim), delay(1000)])
    }
    killing.abort()
    await Promise.all(clients)
    expect(unexpected).toEqual([])

    const { sql } = database
    await eventually(async () => {
      const [row] = await sql`select count(*)::int as n from provider.requests where status in ('IN_QUEUE', 'IN_PROGRESS')`
      const [out] = await sql`select count(*)::int as n from provider.deliveries where state = 'pending'`
      return row?.['n'] === 0 && out?.['n'] === 0
    }, 90_000)
    expect(accepted.size).toBeGreaterThan(seconds)
    expect(await checkLedger(deps)).toMatchObject({ ok: true, problems: [] })
    const known =
      await sql`select k.key, k.request_id, r.status from provider.idempotency_keys k join provider.requests r on r.id = k.request_id`
    const [total] = await sql`select count(*)::int as n from provider.requests`
    expect(total?.['n']).toBe(known.length)
    const byKey = new Map(known.map(({ key, request_id: id }) => [key, id]))
    for (const [key, id] of accepted) expect(byKey.get(key)).toBe(id)
    expect(new Set(known.map(({ status }) => status))).toEqual(new Set(['COMPLETED']))

    // Every ended request was sent, and always under one id with one body.
    const sent = new Map<string, Set<string>>()
    for (const { headers, body } of catcher.caught) {
      const id = JSON.parse(body.toString()).request_id
      sent.set(id, (sent.get(id) ?? new Set()).add(`${headers['x-service-webhook-id']} ${body}`))
    }
    for (const { request_id: id } of known) expect(sent.get(id)?.size).toBe(1)
  },
)
