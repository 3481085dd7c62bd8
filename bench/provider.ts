import { fork } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { createKey, grantCredits, openProvider } from '../src/provider/operating/commands.ts'
import { submittedSchema } from '../src/wire/schemas.ts'
import { type Call, closedLoop, type Measured, steadyRate } from './load-loops.ts'
import { startServer } from './servers.ts'

/**
 * `node bench/provider.ts [--quick]`: the provider with 10,000 queued requests,
 * its worker rendering all the while. Prints p99 of submit and of status polling,
 * and requests a second beside a bare Express handler in the same run.
 */
const quick = process.argv.includes('--quick')
const queued = quick ? 2000 : 10_000
const seconds = quick ? 3 : 10
const accounts = 20
const polling = { perSecond: 200, seconds }
const submitting = { perSecond: 40, seconds }
const crowd = { connections: 64, seconds }

async function startProcess(script: string, env: Record<string, string>) {
  const child = fork(path.join(import.meta.dirname, script), { env, stdio: ['ignore', 'ignore', 'inherit', 'ipc'] })
  const [message] = await once(child, 'message')
  return { url: String(message.url), stop: () => void child.kill('SIGKILL') }
}

async function createKeys(databaseUrl: string, secretKey: Buffer): Promise<string[]> {
  const { deps, close } = openProvider({ databaseUrl, secretKey })
  const keys: string[] = []
  for (let i = 0; i < accounts; i += 1) {
    const account = `bench-${i}`
    keys.push((await createKey(deps, { account, name: 'bench', environment: 'live' })).api_key)
    await grantCredits(deps, { account, credits: 10_000_000 })
  }
  await close()
  return keys
}

function callsOf(apiKeys: readonly string[]) {
  const keyOf = (index: number) => apiKeys[index % apiKeys.length] ?? ''
  const json = { 'content-type': 'application/json' }
  const body = (index: number) => JSON.stringify({ input: { prompt: `benchmark ${index}` } })
  const submitted: { id: string; index: number }[] = []
  return {
    queued: () => submitted.length,
    submit: (index: number): Call => ({
      method: 'POST',
      path: '/v1/models/aurora-image',
      headers: { ...json, authorization: `Bearer ${keyOf(index)}` },
      body: body(index),
    }),
    remember: (text: string, index: number) =>
      void submitted.push({ id: submittedSchema.parse(JSON.parse(text)).request_id, index }),
    status: (turn: number): Call => {
      const { id, index } = submitted[(turn * 7919) % submitted.length] ?? { id: '', index: 0 }
      return { method: 'GET', path: `/v1/requests/${id}/status`, headers: { authorization: `Bearer ${keyOf(index)}` } }
    },
    catalog: (index: number): Call => ({
      method: 'GET',
      path: '/v1/models',
      headers: { authorization: `Bearer ${keyOf(index)}` },
    }),
    barePost: (index: number): Call => ({ method: 'POST', path: '/', headers: json, body: body(index) }),
    bareGet: (): Call => ({ method: 'GET', path: '/' }),
  }
}

async function measure(providerUrl: string, bareUrl: string, apiKeys: readonly string[]) {
  const calls = callsOf(apiKeys)
  const barePost = await closedLoop(bareUrl, crowd, calls.barePost)
  const bareGet = await closedLoop(bareUrl, crowd, calls.bareGet)
  const fill = await closedLoop(
    providerUrl,
    { connections: 64, seconds: 600, calls: queued },
    calls.submit,
    calls.remember,
  )
  const [status, submit] = await Promise.all([
    steadyRate(providerUrl, polling, calls.status),
    steadyRate(providerUrl, submitting, calls.submit, calls.remember),
  ])
  const rows: [string, Measured, Measured][] = [
    [`submit, 64 connections, until ${queued} are queued`, fill, barePost],
    [`submit, ${submitting.perSecond}/s on top of them`, submit, barePost],
    [`status, ${polling.perSecond}/s at the same time`, status, bareGet],
    ['status, 64 connections', await closedLoop(providerUrl, crowd, calls.status), bareGet],
    ['catalog, 64 connections', await closedLoop(providerUrl, crowd, calls.catalog), bareGet],
  ]
  print([['bare Express, POST', barePost, barePost], ['bare Express, GET', bareGet, bareGet], ...rows])
}

function print(rows: readonly [string, Measured, Measured][]): void {
  console.log(`\nprovider, ${os.availableParallelism()} cores, Node ${process.version}\n`)
  console.log('| what | requests/s | of bare Express | p50 ms | p99 ms |')
  console.log('|---|---|---|---|---|')
  for (const [what, measured, bare] of rows) {
    const steady = what.includes('/s ')
    const ratio = steady ? '' : (measured.perSecond / bare.perSecond).toFixed(2)
    const cells = [what, Math.round(measured.perSecond), ratio, measured.p50Ms.toFixed(1), measured.p99Ms.toFixed(1)]
    console.log(`| ${cells.join(' | ')} |`)
  }
}

async function main(): Promise<void> {
  const dataDir = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-bench-'))
  const postgres = await startServer('embedded')
  if (!postgres) throw new Error('there is no embedded PostgreSQL')
  const databaseUrl = await postgres.createDatabase()
  const secretKey = randomBytes(32)
  const provider = await startProcess('provider-process.ts', {
    DATABASE_URL: databaseUrl,
    PROVIDER_PORT: String(await freePort()),
    PROVIDER_CONSOLE_PORT: '0',
    PROVIDER_MEDIA_DIR: path.join(dataDir, 'media'),
    PROVIDER_SECRET_KEY: secretKey.toString('base64'),
    PROVIDER_RATE_PER_KEY: '100000000',
    PROVIDER_RATE_PER_ACCOUNT: '100000000',
  })
  const bare = await startProcess('bare-express-process.ts', {})
  try {
    await measure(provider.url, bare.url, await createKeys(databaseUrl, secretKey))
  } finally {
    bare.stop()
    provider.stop()
    await postgres.stop()
    await fs.rm(dataDir, { recursive: true, force: true })
  }
}

async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  return address !== null && typeof address !== 'string' ? address.port : 0
}

await main()
