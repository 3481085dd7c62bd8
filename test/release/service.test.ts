import fs from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { expect, it, onTestFinished } from 'vitest'
import { checkLedger } from '../../src/provider/accounts/ledger.ts'
import { builtInCatalog } from '../../src/provider/catalog/catalog-file.ts'
import { long, roundsOf } from '../chaos/length.ts'
import { withReceiverProcess, type ReceiverProcess } from '../chaos/receiver-process.ts'
import { inTable } from '../chaos/table.ts'
import { startProcess, type TestProcess } from '../platform/support/processes.ts'
import { startEngineStand } from '../provider/engines/engine-stand.ts'
import { picture, sendJson } from '../provider/engines/images-service.ts'
import { freePort } from '../provider/support/free-port.ts'
import { startTestProvider } from '../provider/support/running-provider.ts'
import { preferredServer, withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { installPackage, type Installed } from './support/installed.ts'

const { orders, kills } = long ? { orders: roundsOf(200), kills: roundsOf(100) } : { orders: 6, kills: 4 }
const seed = Number(process.env['CHAOS_SEED'] ?? Math.floor(Math.random() * 2 ** 32))
/** Of one picture, by the built-in catalog. */
const price = 4
const granted = orders * price + 100
/** The shortest and the longest time between two kills. */
const pauseMs = { from: 200, to: 3000 }

it(
  `a service by docs/recipes/service.md and its receiver, killed ${kills} times at random: each result once, one charge`,
  { timeout: long ? 3_600_000 : 600_000 },
  async () => {
    // The same seed repeats the same kills.
    console.info(`CHAOS_SEED=${seed}`)
    await inTable(
      'a service by the recipe, with the packed package, and its receiver killed at random',
      "each result once, one charge each, progress shown, costs equal to the ledger's",
      async () => {
        const stand = await startStand()
        const project = await installPackage({ types: [] })
        onTestFinished(project.remove)
        const main = path.join(project.folder, 'node_modules/mediadock/dist/main.js')
        const receiver = await withReceiverProcess(stand.databaseUrl, stand.receiverSettings, { program: main })
        const start = await writeService(project, stand)
        const runs = await killAtRandom({ start, receiver, stand })
        const told = runs.flatMap((run) => progressOf(run.output()))
        const saved = await readSaved(project.folder)
        return {
          rounds: kills,
          acknowledged: orders,
          ...(await countBooks(stand, saved)),
          silenceMs: undefined,
          measured: `seed ${seed}; progress shown ${told.length} times, from ${Math.min(...told)} to ${Math.max(...told)} %`,
          met: told.some((percent) => percent > 0 && percent < 100),
        }
      },
    )
  },
)

/** A provider with one live key, whose pictures are ready when the test releases them. */
async function startStand() {
  const port = await freePort()
  const internalPort = await freePort()
  const bytes = (await picture('png')).toString('base64')
  let released = 0
  const engine = await startEngineStand(({ look, job, response }) => {
    const isDone = job <= released && look > 3
    const outputs = isDone ? [{ base64: bytes }] : []
    sendJson(response, {
      status: isDone ? 'done' : 'running',
      progress: isDone ? 100 : Math.min(90, look * 10),
      outputs,
    })
  })
  const catalog = new Map(builtInCatalog())
  const model = catalog.get('aurora-image') ?? expect.fail()
  catalog.set(model.slug, { ...model, engine: 'http', engine_settings: { url: engine.url, poll_seconds: 0.1 } })
  const provider = await startTestProvider({
    catalog,
    webhookAllow: [`http://127.0.0.1:${port}`],
    backoffBaseMs: 1000,
  })
  onTestFinished(provider.stop)
  const key = await provider.createKey({ environment: 'live' })
  await provider.grant(key.account, granted)
  const { url: databaseUrl, sql } = await withTestDatabase(preferredServer)
  const receiverSettings = {
    PORT: String(port),
    INTERNAL_PORT: String(internalPort),
    GENERATION_API_URL: provider.url,
    WEBHOOK_PUBLIC_URL: `http://127.0.0.1:${port}/webhooks`,
    GENERATION_KEYS: JSON.stringify([{ name: 'live', api_key: key.api_key, signing_secret: key.signing_secret }]),
    FETCH_RATE_PER_MINUTE: '3000',
    FETCH_RATE_PER_ACCOUNT_PER_MINUTE: '3000',
  }
  return {
    provider,
    key,
    sql,
    databaseUrl,
    receiverSettings,
    internalUrl: `http://127.0.0.1:${internalPort}`,
    release: (count: number) => {
      released += count
    },
  }
}
type Stand = Awaited<ReturnType<typeof startStand>>

/** Writes the program of the recipe as the package has it. Returns a function that starts it. */
async function writeService({ folder, env }: Installed, { internalUrl }: Stand): Promise<() => TestProcess> {
  const page = await fs.readFile(path.join(folder, 'node_modules/mediadock/docs/recipes/service.md'), 'utf8')
  const [, program = ''] = /^```ts\n([^]*?)^```/m.exec(page) ?? []
  expect(program.trim().split('\n').length).toBeLessThan(60)
  await fs.writeFile(path.join(folder, 'generate.ts'), program)
  const prompts = Array.from({ length: orders }, (_, at) => `order ${at}`)
  await fs.writeFile(path.join(folder, 'orders.txt'), prompts.join('\n'))
  return () =>
    startProcess(process.execPath, ['generate.ts'], {
      cwd: folder,
      env: { ...env, MEDIADOCK_URL: internalUrl, KEY_NAME: 'live' },
    })
}

type Killing = { start: () => TestProcess; receiver: ReceiverProcess; stand: Stand }

/** Kills the service, the receiver or both, and starts them again. Waits until the service has ended. Returns its runs. */
async function killAtRandom({ start, receiver, stand }: Killing): Promise<TestProcess[]> {
  const random = randomOf(seed)
  const runs = [start()]
  // From here on, a kill leaves something behind.
  await eventually(async () => (await submittedOf(stand)).length > 0)
  // The engine ends no picture before it is released, so the service shows its progress, however slow the machine is.
  await eventually(() => runs.some((run) => progressOf(run.output()).some((percent) => percent > 0)), 300_000)
  const victims = shuffled(
    Array.from({ length: kills }, (_, at) => (['service', 'receiver', 'service', 'both'] as const)[at % 4] ?? 'both'),
    random,
  )
  for (const victim of victims) {
    await delay(pauseMs.from + random() * (pauseMs.to - pauseMs.from))
    if (victim !== 'receiver') runs.at(-1)?.kill('SIGKILL')
    if (victim !== 'service') await receiver.kill()
    if (victim !== 'receiver') {
      // One that had ended before has all its orders.
      expect([0, null]).toContain((await runs.at(-1)?.exit)?.code)
      runs.push(start())
    }
    if (victim !== 'service') await receiver.start()
    stand.release(Math.ceil(orders / (kills + 1)))
  }
  stand.release(Infinity)
  const last = runs.at(-1) ?? expect.fail()
  expect(await last.exit, last.output()).toEqual({ code: 0, signal: null })
  return runs
}

/** Percentages that the service printed. */
function progressOf(output: string): number[] {
  return [...output.matchAll(/^[0-9a-f-]{36} IN_PROGRESS (\d+)$/gm)].map(([, percent]) => Number(percent))
}

type Saved = { key: string; prompt: string; request_id?: string; urls?: string[] }

/** The orders as the service keeps them, with what it saved for each. */
async function readSaved(folder: string): Promise<Saved[]> {
  const kept: { id: string; prompt: string }[] = JSON.parse(await fs.readFile(path.join(folder, 'orders.json'), 'utf8'))
  const files = await fs.readdir(path.join(folder, 'pictures'))
  expect(files.toSorted()).toEqual(kept.map(({ id }) => `${id}.json`).toSorted())
  return Promise.all(
    kept.map(async ({ id, prompt }) => ({
      key: id,
      prompt,
      ...JSON.parse(await fs.readFile(path.join(folder, 'pictures', `${id}.json`), 'utf8')),
    })),
  )
}

/** The requests at the provider. */
async function submittedOf({ provider }: Pick<Stand, 'provider'>) {
  return provider.database.sql<{ id: string; prompt: string }[]>`
    select id, input ->> 'prompt' as prompt from provider.requests`
}

/** Holds what the service saved against the receiver's results and the provider's ledger. */
async function countBooks({ provider, key, sql, internalUrl }: Stand, saved: readonly Saved[]) {
  const submitted = await submittedOf({ provider })
  const results = await sql<{ request_id: string; key: string }[]>`
    select request_id, idempotency_key as key from mediadock.results where status = 'COMPLETED' and media_complete`
  const requestOf = new Map(submitted.map(({ id, prompt }) => [prompt, id]))
  const lost = saved.filter(
    ({ key: order, prompt, request_id, urls }) =>
      urls?.length !== 1 ||
      request_id !== requestOf.get(prompt) ||
      !results.some((row) => row.key === order && row.request_id === request_id),
  )
  expect(saved).toHaveLength(orders)
  expect(results).toHaveLength(orders)
  // Charges: the account, the ledger and the receiver's costs agree.
  const account = await provider.call('GET', '/v1/account', { key: key.api_key })
  expect(account.body).toMatchObject({
    balance: { credits: granted - orders * price },
    usage_30d: { requests: orders, credits_spent: orders * price },
  })
  expect(await checkLedger(provider.deps.db)).toMatchObject({ ok: true, problems: [] })
  const costs = await fetch(`${internalUrl}/api/costs?by=key_name`)
  expect(await costs.json()).toMatchObject({
    data: [{ group: 'live', requests: orders, credits_settled: orders * price, credits_reserved: 0 }],
  })
  return { lost: lost.length, doubled: submitted.length - requestOf.size }
}

function shuffled<T>(items: readonly T[], random: () => number): T[] {
  return items
    .map((item) => ({ item, place: random() }))
    .toSorted((a, b) => a.place - b.place)
    .map(({ item }) => item)
}

/** mulberry32: small, and the same for a seed everywhere. */
function randomOf(from: number): () => number {
  let state = from
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
