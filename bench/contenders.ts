import { fork, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { generationKeys } from './signed-requests.ts'

export type Contender = { webhooksUrl: string; stop: () => Promise<void> }

const startTimeoutMs = 20_000
const mainFile = path.resolve(import.meta.dirname, '../src/main.ts')

/** The receiver as it is run in earnest: its own process, its log at its usual level, into a file. */
export async function startReceiverProcess(
  databaseUrl: string,
  folder: string,
  env: Record<string, string> = {},
): Promise<Contender & { consoleUrl: string }> {
  const logFile = path.join(folder, 'receiver.log')
  const log = await fs.open(logFile, 'w')
  const profiling = process.env['BENCH_CPU_PROFILE'] ? ['--cpu-prof', '--cpu-prof-dir', process.env['BENCH_CPU_PROFILE']] : []
  const child = spawn(process.execPath, [...profiling, mainFile, 'receiver'], {
    // What a laptop keeps beside the program (`.data/`) goes to the benchmark's own folder.
    cwd: folder,
    env: {
      DATABASE_URL: databaseUrl,
      HOST: '127.0.0.1',
      PORT: '0',
      INTERNAL_PORT: '0',
      GENERATION_KEYS: generationKeys,
      // Nobody is there: audio and errors land without the provider.
      GENERATION_API_URL: 'http://127.0.0.1:9',
      ...env,
    },
    stdio: ['ignore', log.fd, 'inherit'],
  })
  await log.close()
  const { webhooks, console } = await startedUrls(child, logFile)
  return { webhooksUrl: webhooks, consoleUrl: console, stop: () => stop(child, 'SIGTERM') }
}

/** Its log says where it listens. */
async function startedUrls(child: ChildProcess, logFile: string): Promise<{ webhooks: string; console: string }> {
  const deadline = Date.now() + startTimeoutMs
  while (Date.now() < deadline && child.exitCode === null) {
    const log = await fs.readFile(logFile, 'utf8')
    const [, webhooks] = /"webhooks":"([^"]+)"/.exec(log) ?? []
    const [, console] = /"console":"([^"]+)"/.exec(log) ?? []
    if (webhooks !== undefined && console !== undefined) return { webhooks, console }
    await delay(50)
  }
  throw new Error(`the receiver did not start: ${await fs.readFile(logFile, 'utf8')}`)
}

/** Express + raw-body + HMAC; with a database, one insert per request. */
export async function startExpressProcess(databaseUrl?: string): Promise<Contender> {
  return startForked('express-process.ts', { env: databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl }, stdout: 'inherit' })
}

/** The receiver's own way in, its log into a file, with one statement per request. */
export async function startOneByOneProcess(databaseUrl: string, folder: string): Promise<Contender> {
  const log = await fs.open(path.join(folder, 'one-by-one.log'), 'w')
  try {
    return await startForked('one-by-one-process.ts', { env: { DATABASE_URL: databaseUrl }, stdout: log.fd })
  } finally {
    await log.close()
  }
}

async function startForked(file: string, { env, stdout }: { env: Record<string, string>; stdout: number | 'inherit' }): Promise<Contender> {
  const child = fork(path.join(import.meta.dirname, file), { env, stdio: ['ignore', stdout, 'inherit', 'ipc'] })
  const [served]: { url: string }[] = await once(child, 'message')
  return { webhooksUrl: `${served?.url}/webhooks`, stop: () => stop(child, 'SIGKILL') }
}

async function stop(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = once(child, 'exit')
  child.kill(signal)
  await gone
}
