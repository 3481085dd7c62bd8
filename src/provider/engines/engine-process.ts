import fs from 'node:fs'
import os from 'node:os'
import { inspect } from 'node:util'
import { type EngineReport, type Order, orderSchema } from './engine-messages.ts'
import type { EngineSettings } from './engine-settings.ts'
import { type Engine, EngineError } from './engine.ts'

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

type Engines = ReadonlyMap<string, Engine>

const running = new Map<number, AbortController>()

async function run(
  loaded: Promise<Engines>,
  { run: id, engine: name, job }: Extract<Order, { kind: 'run' }>,
): Promise<void> {
  const controller = new AbortController()
  running.set(id, controller)
  try {
    const engine = (await loaded).get(name)
    if (engine === undefined) throw new EngineError('no engine is installed for this model')
    const report = async (percent: number, line?: string) => say({ kind: 'progress', run: id, percent, line })
    say({ kind: 'done', run: id, output: await engine.run(job, report, controller.signal) })
  } catch (error) {
    const forClient = error instanceof EngineError ? { message: error.message, transient: error.transient } : undefined
    say({ kind: 'failed', run: id, detail: inspect(error).slice(0, maxDetailLength), forClient })
  } finally {
    running.delete(id)
  }
}

/** What draws and encodes is large, and in a package there only where somebody wanted it. */
async function load(settings: EngineSettings | undefined): Promise<Engines> {
  try {
    const { createEngines } = await import('./registry.ts')
    return createEngines({ settings })
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
let engines: Promise<Engines> = Promise.resolve(new Map())
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
      running.get(order.run)?.abort(new Error('aborted'))
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
