import { fork, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createReadStream, rmSync } from 'node:fs'
import fs from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import readline from 'node:readline'
import { setTimeout as delay } from 'node:timers/promises'
import { generationKeys } from './signed-requests.ts'

export type Contender = { webhooksUrl: string; pid: number; stop: () => Promise<void> }
export type Receiver = Contender & {
  consoleUrl: string
  kill: () => Promise<void>
  /** The last warnings and errors of its log, one a line. */
  complaints: () => Promise<string>
}

export type ReceiverOptions = {
  databaseUrl: string
  /** Nobody is there without it. */
  providerUrl?: string
  env?: Record<string, string>
  /** Where its log goes; without it a file that is gone with the receiver. */
  logFile?: string
  /** A folder for a CPU profile of it, written when it stops. */
  profileFolder?: string | undefined
}

const startTimeoutMs = 30_000
const root = path.resolve(import.meta.dirname, '..')

/** Returns the program, its words and the environment of the image, as the Dockerfile states them. */
async function startedByImage(): Promise<{ program: string[]; env: Record<string, string> }> {
  const stage = (await fs.readFile(path.join(root, 'Dockerfile'), 'utf8')).split(/^FROM /m).at(-1) ?? ''
  const words = (instruction: string): string[] =>
    JSON.parse(new RegExp(`^${instruction} (\\[.*\\])$`, 'm').exec(stage)?.[1] ?? '[]')
  const [node, ...args] = [...words('ENTRYPOINT'), ...words('CMD')]
  const [program, ...more] = args
  if (node !== 'node' || program === undefined) throw new Error('the Dockerfile does not start the receiver by node')
  const given = [...stage.matchAll(/^ENV (.+)$/gm)].flatMap(([, all = '']) => all.split(' '))
  return {
    program: [path.join(root, program), ...more],
    env: Object.fromEntries(given.map((one) => [one.slice(0, one.indexOf('=')), one.slice(one.indexOf('=') + 1)])),
  }
}

/** Settings that production requires. Nothing listens at this provider. */
const receiverSettings = {
  GENERATION_KEYS: generationKeys,
  GENERATION_API_URL: 'http://127.0.0.1:9',
  WEBHOOK_PUBLIC_URL: 'https://receiver.example/webhooks',
}

/** The receiver as the Dockerfile starts it: production, its own process, its log at its usual level. */
export async function startReceiverProcess({
  databaseUrl,
  providerUrl,
  env = {},
  logFile,
  profileFolder = process.env['BENCH_CPU_PROFILE'],
}: ReceiverOptions): Promise<Receiver> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-bench-receiver-'))
  const logPath = logFile ?? path.join(folder, 'receiver.log')
  const log = await fs.open(logPath, 'w')
  const profiling = profileFolder ? ['--cpu-prof', '--cpu-prof-dir', profileFolder] : []
  const image = await startedByImage()
  const [port, internalPort] = [await freePort(), await freePort()]
  const child = spawn(process.execPath, [...profiling, ...image.program], {
    cwd: folder,
    env: {
      ...image.env,
      DATABASE_URL: databaseUrl,
      HOST: '127.0.0.1',
      PORT: String(port),
      INTERNAL_PORT: String(internalPort),
      ...receiverSettings,
      ...(providerUrl !== undefined && { GENERATION_API_URL: providerUrl }),
      // Of no consequence for what is measured: an end after it takes as long.
      SHUTDOWN_GRACE_SECONDS: '2',
      ...env,
    },
    stdio: ['ignore', log.fd, 'inherit'],
  })
  await log.close()
  const url = `http://127.0.0.1:${port}`
  const endWithUs = () => {
    child.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
  process.once('exit', endWithUs)
  const gone = async (signal: NodeJS.Signals) => {
    process.off('exit', endWithUs)
    await end(child, signal)
    await fs.rm(folder, { recursive: true, force: true })
  }
  try {
    await untilReady(`${url}/readyz`, child)
  } catch (error) {
    await gone('SIGKILL')
    throw error
  }
  return {
    webhooksUrl: `${url}/webhooks`,
    consoleUrl: `http://127.0.0.1:${internalPort}/`,
    pid: child.pid ?? 0,
    stop: () => gone('SIGTERM'),
    kill: () => gone('SIGKILL'),
    complaints: () => complaintsIn(logPath),
  }
}

/** Returns the seconds that `mediadock status` takes with this database. */
export async function timeStatus(databaseUrl: string): Promise<number> {
  const image = await startedByImage()
  const started = performance.now()
  const child = spawn(process.execPath, [...image.program.slice(0, 1), 'status'], {
    env: { ...image.env, ...receiverSettings, DATABASE_URL: databaseUrl },
    stdio: 'ignore',
  })
  await once(child, 'exit')
  return (performance.now() - started) / 1000
}

const complaintsShown = 20
const complaintLength = 1000

async function complaintsIn(logPath: string): Promise<string> {
  const last: string[] = []
  for await (const line of readline.createInterface({ input: createReadStream(logPath) })) {
    if (!/"level":"(?:warn|error|fatal)"/.test(line)) continue
    last.push(line.slice(0, complaintLength))
    if (last.length > complaintsShown) last.shift()
  }
  return last.join('\n')
}

async function untilReady(url: string, child: ChildProcess): Promise<void> {
  const deadline = Date.now() + startTimeoutMs
  while (Date.now() < deadline && child.exitCode === null && child.signalCode === null) {
    const answer = await fetch(url).catch(() => undefined)
    await answer?.body?.cancel()
    if (answer?.status === 200) return
    await delay(50)
  }
  throw new Error('the receiver did not start')
}

/** Express + raw-body + HMAC; with a database, one insert per request. */
export async function startExpressProcess(databaseUrl?: string): Promise<Contender> {
  const { url, ...started } = await startForked('express-process.ts', databaseUrl === undefined ? [] : [databaseUrl])
  return { webhooksUrl: `${url}/webhooks`, ...started }
}

/** stripe-sync-engine, which writes to a schema of its own in this database. */
export async function startStripeProcess(databaseUrl: string): Promise<Contender> {
  const { url, ...started } = await startForked('stripe-process.ts', [databaseUrl])
  return { webhooksUrl: `${url}/webhooks`, ...started }
}

/** A process of this folder that says where it serves, in production as the receiver is, and is killed when it is no longer wanted. */
export async function startForked(file: string, args: readonly string[]) {
  const child = fork(path.join(import.meta.dirname, file), args, {
    env: { NODE_ENV: 'production' },
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  const [served]: { url: string }[] = await once(child, 'message')
  return { child, url: served?.url ?? '', pid: child.pid ?? 0, stop: () => end(child, 'SIGKILL') }
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = once(child, 'exit')
  child.kill(signal)
  await gone
}

async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  await once(server, 'close')
  if (address === null || typeof address === 'string') throw new Error('no free port')
  return address.port
}
