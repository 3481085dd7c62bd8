import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { onTestFinished } from 'vitest'
import { freePort } from '../provider/support/free-port.ts'
import { childEnv } from '../support/child-env.ts'
import { eventually } from '../support/eventually.ts'
import { liveKey, startTestReceiver } from '../support/receiver.ts'

/** A machine with a lot of other work takes its time. */
const startWithinMs = 240_000

const mainFile = path.resolve(import.meta.dirname, '../../src/main.ts')

export type ReceiverProcess = {
  url: string
  /** Of the process that runs now. */
  pid: () => number
  isRunning: () => boolean
  /** Status of `GET /readyz`. */
  ready: () => Promise<number>
  /** Of another version from now on, where its main file is given. */
  start: (program?: string) => Promise<void>
  /** SIGKILL: no handler runs, nothing is flushed. */
  kill: () => Promise<void>
  /** SIGTERM, as a supervisor does; answers how it ended. */
  stop: () => Promise<{ code: number | null; tookMs: number }>
  /** Says something to what was preloaded. */
  tell: (message: object) => void
}

export type ProcessOptions = {
  /** The main file of another version. */
  program?: string
  /** A module that is run in the process before the program. */
  preload?: string
  /** The folder of a control group that it is started in. */
  controlGroup?: string
}

/** The receiver as it is deployed, `node src/main.ts receiver`, for the length of one test; it keeps its ports over restarts. */
export async function withReceiverProcess(
  databaseUrl: string,
  settings: Record<string, string> = {},
  { program: firstProgram = mainFile, preload, controlGroup }: ProcessOptions = {},
): Promise<ReceiverProcess> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-chaos-'))
  const port = Number(settings['PORT'] ?? (await freePort()))
  const env = {
    ...childEnv,
    // As bin/mediadock.js sets it, with the options below.
    MALLOC_MMAP_THRESHOLD_: '8192',
    DATABASE_URL: databaseUrl,
    HOST: '127.0.0.1',
    PORT: String(port),
    INTERNAL_PORT: String(await freePort()),
    GENERATION_KEYS: JSON.stringify([liveKey]),
    GENERATION_API_URL: 'http://127.0.0.1:9',
    LOG_LEVEL: 'fatal',
    ...settings,
  }
  let child: ChildProcess | undefined
  let main = firstProgram
  const url = `http://127.0.0.1:${port}`
  const isRunning = () => child !== undefined && child.exitCode === null && child.signalCode === null
  const ready = async () => (await fetch(`${url}/readyz`)).status
  const receiver: ReceiverProcess = {
    url,
    pid: () => child?.pid ?? 0,
    isRunning,
    ready,
    start: async (program = main) => {
      main = program
      // The files of a laptop's start go to a separate folder.
      const preloaded = preload === undefined ? [] : ['--import', preload]
      const node = [
        process.execPath,
        '--max-old-space-size=512',
        '--max-semi-space-size=16',
        ...preloaded,
        main,
        'receiver',
      ]
      // It joins the group before it is itself: what it takes is counted from the first page on.
      const [command = '', ...args] =
        controlGroup === undefined
          ? node
          : ['sh', '-c', 'echo $$ > "$0/cgroup.procs" && exec "$@"', controlGroup, ...node]
      child = spawn(command, args, {
        cwd: folder,
        env,
        stdio: ['ignore', 'ignore', 'inherit', ...(preload === undefined ? [] : ['ipc' as const])],
      })
      await eventually(async () => (await ready()) === 200, startWithinMs)
    },
    kill: async () => {
      if (!child || !isRunning()) return
      const gone = once(child, 'exit')
      child.kill('SIGKILL')
      await gone
    },
    stop: async () => {
      const started = performance.now()
      if (!child || !isRunning()) throw new Error('the receiver does not run')
      const gone = once(child, 'exit')
      child.kill('SIGTERM')
      await gone
      return { code: child.exitCode, tookMs: performance.now() - started }
    },
    tell: (message) => void child?.send(message),
  }
  onTestFinished(async () => {
    await receiver.kill()
    await fs.rm(folder, { recursive: true, force: true })
  })
  await receiver.start()
  return receiver
}

/**
 * A receiver in the process of the test, on a migrated database. The short form of a test that ends no process uses it:
 * a process takes longer to start than the test.
 */
export async function withReceiverHere(
  databaseUrl: string,
): Promise<Pick<ReceiverProcess, 'url' | 'ready' | 'isRunning'>> {
  const { webhookUrl, stop } = await startTestReceiver({ databaseUrl })
  onTestFinished(stop)
  const url = new URL(webhookUrl).origin
  return { url, ready: async () => (await fetch(`${url}/readyz`)).status, isRunning: () => true }
}
