import { spawn, type ChildProcess } from 'node:child_process'
import { randomBytes, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { expect, onTestFinished } from 'vitest'
import { checkLedger } from '../../../src/provider/accounts/ledger.ts'
import { createKey, grantCredits, openProvider } from '../../../src/provider/operating/commands.ts'
import { childEnv } from '../../support/child-env.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { freePort } from './free-port.ts'
import { call } from './running-provider.ts'
import { startWebhookCatcher } from './webhook-catcher.ts'

export type Site = { port: number; boot: () => Promise<void>; kill: () => Promise<void> }

type SitesOptions = {
  database: TestDatabase
  /** With which connection string each of them reaches the database. */
  urls: readonly string[]
  catcher: Awaited<ReturnType<typeof startWebhookCatcher>>
  credits: number
  /** Instead of the built-in catalog. */
  catalogFile?: string
}

/** Provider processes on one database, to be killed, with clients that submit to all of them. */
export async function withProviderSites({ database, urls, catcher, credits, catalogFile }: SitesOptions) {
  const mediaDir = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-kill-'))
  const secretKey = randomBytes(32)
  const { deps, close } = openProvider({ databaseUrl: database.url, secretKey })
  onTestFinished(close)
  const script = fileURLToPath(import.meta.resolve('./provider-process.ts'))
  const siteOn = async (databaseUrl: string): Promise<Site> => {
    const port = await freePort()
    let child: ChildProcess | undefined
    const env = {
      ...childEnv,
      DATABASE_URL: databaseUrl,
      PROVIDER_PORT: String(port),
      PROVIDER_CONSOLE_PORT: '0',
      PROVIDER_MEDIA_DIR: mediaDir,
      PROVIDER_SECRET_KEY: secretKey.toString('base64'),
      PROVIDER_WEBHOOK_ALLOW: catcher.origin,
      PROVIDER_DISPATCH_INTERVAL_MS: '200',
      PROVIDER_BACKOFF_BASE_MS: '200',
      PROVIDER_WEBHOOK_TIMEOUT_MS: '1000',
      PROVIDER_RATE_PER_KEY: '1000000',
      PROVIDER_RATE_PER_ACCOUNT: '1000000',
      ...(catalogFile !== undefined && { PROVIDER_CATALOG: catalogFile }),
    }
    onTestFinished(() => void child?.kill('SIGKILL'))
    return {
      port,
      boot: async () => {
        child = spawn(process.execPath, [script], { env, stdio: ['ignore', 'pipe', 'inherit'] })
        await once(child.stdout ?? expect.fail(), 'data')
      },
      kill: async () => {
        const died = once(child ?? expect.fail(), 'exit')
        child?.kill('SIGKILL')
        await died
      },
    }
  }
  const sites = await Promise.all(urls.map(siteOn))
  await Promise.all(sites.map(({ boot }) => boot()))
  const keys = await Promise.all(
    ['ebb', 'flow'].map((account) => createKey(deps, { account, name: 'k', environment: 'live' })),
  )
  const sandbox = await createKey(deps, { account: 'ebb', name: 's', environment: 'sandbox' })
  for (const account of ['ebb', 'flow']) await grantCredits(deps, { account, credits })

  const accepted = new Map<string, string>()
  const unexpected: string[] = []

  // A client without an answer retries with the same key at a provider that answers.
  const submitUntilAnswered = async (key: string, signal: AbortSignal) => {
    const headers = { 'idempotency-key': randomUUID() }
    const body = { input: { prompt: randomUUID() }, webhook_url: `${catcher.origin}/hook` }
    for (let turn = Math.floor(Math.random() * sites.length); !signal.aborted; turn += 1) {
      const url = `http://127.0.0.1:${sites[turn % sites.length]?.port}`
      const answer = await call(url, 'POST', '/v1/models/aurora-image', { key, body, headers }).catch(() => undefined)
      if (answer?.status === 200) return void accepted.set(headers['idempotency-key'], answer.body.request_id)
      if (answer?.status === 402) return
      if (answer && answer.status !== 409 && answer.status !== 503)
        unexpected.push(`${answer.status} ${JSON.stringify(answer.body)}`)
      await delay(20)
    }
  }

  return {
    sites,
    deps,
    accepted,
    /** Runs this many clients until the signal. Each pauses after every submit. */
    submitting: async ({ clients, pauseMs, signal }: { clients: number; pauseMs: number; signal: AbortSignal }) => {
      await Promise.all(
        Array.from({ length: clients }, async (_, lane) => {
          const key = [keys[0], keys[1], keys[0], sandbox][lane % 4]?.api_key ?? ''
          while (!signal.aborted) {
            await submitUntilAnswered(key, signal)
            await delay(pauseMs)
          }
        }),
      )
      expect(unexpected).toEqual([])
    },
    untilAllEnded: async (withinMs: number) => {
      await eventually(async () => {
        const [row] =
          await database.sql`select count(*)::int as n from provider.requests where status in ('IN_QUEUE', 'IN_PROGRESS')`
        const [out] = await database.sql`select count(*)::int as n from provider.deliveries where state = 'pending'`
        return row?.['n'] === 0 && out?.['n'] === 0
      }, withinMs)
    },
    /** Broken promises: accepted submits without a request, requests without a submit, webhooks with two contents. */
    lookAtBooks: async () => {
      const ledger = await checkLedger(deps.db)
      const known = await database.sql`
        select k.key, k.request_id, r.status from provider.idempotency_keys k join provider.requests r on r.id = k.request_id`
      const [total] = await database.sql`select count(*)::int as n from provider.requests`
      const byKey = new Map(known.map(({ key, request_id: id }) => [key, id]))
      // Every ended request was sent, and always under one id with one body.
      const sent = new Map<string, Set<string>>()
      for (const { headers, body } of catcher.caught) {
        const id = JSON.parse(body.toString()).request_id
        sent.set(id, (sent.get(id) ?? new Set()).add(`${headers['x-service-webhook-id']} ${body}`))
      }
      return {
        ledger,
        lost:
          [...accepted].filter(([key, id]) => byKey.get(key) !== id).length +
          known.filter(({ request_id: id }) => !sent.has(id)).length,
        doubled:
          (total?.['n'] ?? NaN) -
          known.length +
          known.filter(({ request_id: id }) => (sent.get(id)?.size ?? 0) > 1).length,
        ends: new Set(known.map(({ status }) => status)),
      }
    },
  }
}
