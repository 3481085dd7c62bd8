import fs from 'node:fs'
import os from 'node:os'
import { inspect } from 'node:util'
import type { z } from 'zod'
import type { EngineChoice, RemoteJob } from '../domain/engine-choice.ts'
import { type Engine, EngineError, type EngineReport, EngineStop, orderSchema } from './engine.ts'

/**
 * The process that runs engines. engine-host.ts starts it and sends orders over its channel. It has the lowest
 * priority, because drawing and encoding use every available core and must not slow down the API. A crash of native
 * code ends this process, not the API.
 */
const niceness = os.constants.priority.PRIORITY_LOW

/** The highest score. If memory runs out, the kernel kills this process before the API and Postgres. */
const outOfMemoryScore = '1000'

/**
 * Lowers the priority of this process and of the session that engine-host.ts gave it. Linux may divide the CPU among
 * sessions first and apply niceness only within one. Without the second step, engines would get as much CPU as Postgres.
 */
function lowerPriority(): void {
  const lower = [
    () => os.setPriority(niceness),
    () => fs.writeFileSync('/proc/self/autogroup', String(niceness)),
    () => fs.writeFileSync('/proc/self/oom_score_adj', outOfMemoryScore),
  ]
  for (const step of lower) {
    try {
      step()
    } catch {
      // Some systems and containers forbid it. Then engines compete with the API.
    }
  }
}

function sendReport(report: EngineReport): void {
  // A dead provider gets no report. The event `disconnect` then ends this process.
  if (process.connected) process.send?.(report, () => {})
}

type FindEngine = (choice: EngineChoice, token: string | undefined) => Engine | undefined
type RunOrder = Extract<z.infer<typeof orderSchema>, { kind: 'run' }>

const running = new Map<number, AbortController>()
/** The runs that wait for their remote job to be stored. */
const keeping = new Map<number, (isKept: boolean) => void>()

/** Resolves when the provider has committed the remote job. */
async function keepRemoteJob(run: number, remoteJob: RemoteJob): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<boolean>()
  keeping.set(run, resolve)
  sendReport({ kind: 'remote_job', run, remoteJob })
  const isKept = await promise.finally(() => keeping.delete(run))
  if (!isKept) throw new Error('the provider did not store the remote job')
}

async function run(loaded: Promise<FindEngine>, { run: id, engine: choice, token, job }: RunOrder): Promise<void> {
  const controller = new AbortController()
  running.set(id, controller)
  try {
    const engine = (await loaded)(choice, token)
    if (engine === undefined) throw new EngineError('no engine is installed for this model')
    const report = async (percent: number, line?: string) => sendReport({ kind: 'progress', run: id, percent, line })
    const whole = { ...job, keepRemoteJob: (remoteJob: RemoteJob) => keepRemoteJob(id, remoteJob) }
    sendReport({ kind: 'done', run: id, output: await engine(whole, report, controller.signal) })
  } catch (error) {
    const forClient = error instanceof EngineError ? { message: error.message, transient: error.transient } : undefined
    sendReport({ kind: 'failed', run: id, detail: inspect(error).slice(0, 8000), forClient })
  } finally {
    running.delete(id)
  }
}

/** Imports the engines here, because their packages are large and optional. */
async function load(ffmpegPath: string | undefined): Promise<FindEngine> {
  try {
    const { createEngines, createRemoteEngine } = await import('./registry.ts')
    const local = createEngines(ffmpegPath)
    return (choice, token) => local.get(choice.name) ?? createRemoteEngine(choice, token)
  } catch (cause) {
    if (!(cause instanceof Error && 'code' in cause && /^(?:ERR_)?MODULE_NOT_FOUND$/.test(String(cause.code))))
      throw cause
    const missing = 'engine packages are missing: npm i sharp @resvg/resvg-js dejavu-fonts-ttf @ffmpeg-installer/ffmpeg'
    throw new EngineError('no engines are installed on the server', { cause: new Error(missing, { cause }) })
  }
}

lowerPriority()
const engines = load(process.argv[2])
// The error is reported by each run.
engines.catch(() => {})
process.on('message', (message) => {
  const order = orderSchema.parse(message)
  switch (order.kind) {
    case 'run':
      run(engines, order).catch((error: unknown) => {
        // Not even the failure could be reported. The provider starts another process.
        process.stderr.write(`${inspect(error)}\n`)
        process.exit(1)
      })
      break
    case 'abort':
      running.get(order.run)?.abort(new EngineStop('aborted', { discard: order.discard }))
      break
    case 'remote_job_kept':
      keeping.get(order.run)?.(order.isKept)
      break
    default:
      order satisfies never
  }
})
// The provider has died, so its runs are obsolete.
process.on('disconnect', () => process.exit(0))
// The provider decides when this process ends.
process.on('SIGINT', () => {})
process.on('SIGTERM', () => {})
