import fs from 'node:fs'
import os from 'node:os'
import { inspect } from 'node:util'
import type { z } from 'zod'
import type { EngineChoice, RemoteJob } from '../domain/engine-choice.ts'
import { type EngineReport, orderSchema } from './engine-messages.ts'
import type { EngineSettings } from './engine-settings.ts'
import { type Engine, EngineError, EngineStop } from './engine.ts'

/**
 * The process that engines run in: started by engine-host.ts, given its orders
 * over its channel. Drawing and encoding take every core they get, so they have
 * the least of all priorities: what answering the API leaves over. And native
 * code that crashes ends this process, not the API.
 */
const niceness = 19
const maxDetailLength = 8000

/** Of 1000: the kernel ends this process first where memory is short, and spares the API and Postgres. */
const outOfMemoryScore = '1000'

/**
 * Linux may weigh whole sessions against each other first, and niceness only
 * within one: engines would then get as much of a core as Postgres. So the
 * session that engine-host.ts gave this process is made as nice as the process.
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
      // Not everywhere, and some containers forbid it; then engines compete with the API for the cores.
    }
  }
}

function say(report: EngineReport): void {
  // A provider that has just died gets nothing any more; its end shows as a disconnect.
  if (process.connected) process.send?.(report, () => {})
}

type FindEngine = (choice: EngineChoice, token: string | undefined) => Engine | undefined
type RunOrder = Extract<z.infer<typeof orderSchema>, { kind: 'run' }>

const running = new Map<number, AbortController>()
/** Of each run that waits for its job on another server to be kept. */
const keeping = new Map<number, (isKept: boolean) => void>()

/** Settles when the provider has committed it. */
async function keepRemoteJob(run: number, remoteJob: RemoteJob): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<boolean>()
  keeping.set(run, resolve)
  say({ kind: 'remote_job', run, remoteJob })
  const isKept = await promise.finally(() => keeping.delete(run))
  if (!isKept) throw new Error('the provider did not keep the job of the engine')
}

async function run(loaded: Promise<FindEngine>, { run: id, engine: choice, token, job }: RunOrder): Promise<void> {
  const controller = new AbortController()
  running.set(id, controller)
  try {
    const engine = (await loaded)(choice, token)
    if (engine === undefined) throw new EngineError('no engine is installed for this model')
    const report = async (percent: number, line?: string) => say({ kind: 'progress', run: id, percent, line })
    const whole = { ...job, keepRemoteJob: (remoteJob: RemoteJob) => keepRemoteJob(id, remoteJob) }
    say({ kind: 'done', run: id, output: await engine.run(whole, report, controller.signal) })
  } catch (error) {
    const forClient = error instanceof EngineError ? { message: error.message, transient: error.transient } : undefined
    say({ kind: 'failed', run: id, detail: inspect(error).slice(0, maxDetailLength), forClient })
  } finally {
    running.delete(id)
  }
}

/** What draws and encodes is large, and in a package there only where somebody wanted it. */
async function load(settings: EngineSettings | undefined): Promise<FindEngine> {
  try {
    const { createEngines, createRemoteEngine } = await import('./registry.ts')
    const local = createEngines({ settings })
    return (choice, token) => local.get(choice.name) ?? createRemoteEngine(choice, token)
  } catch (cause) {
    if (!(cause instanceof Error && 'code' in cause && /^(?:ERR_)?MODULE_NOT_FOUND$/.test(String(cause.code))))
      throw cause
    throw new EngineError('no engines are installed on the server', {
      cause: new Error(
        'what engines draw with is not there: npm i sharp @resvg/resvg-js dejavu-fonts-ttf @ffmpeg-installer/ffmpeg',
        {
          cause,
        },
      ),
    })
  }
}

lowerPriority()
let engines: Promise<FindEngine> = Promise.resolve(() => undefined)
process.on('message', (message) => {
  const order = orderSchema.parse(message)
  switch (order.kind) {
    case 'settings':
      engines = load(order.settings)
      // Whoever wants one is told.
      engines.catch(() => {})
      break
    case 'run':
      run(engines, order).catch((error: unknown) => {
        // It could not even say that it failed: the provider starts another process.
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
// The provider has died: what runs here belongs to nobody any more.
process.on('disconnect', () => process.exit(0))
// The provider decides when this process ends.
process.on('SIGINT', () => {})
process.on('SIGTERM', () => {})
