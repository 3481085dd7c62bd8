import fs from 'node:fs/promises'
import inspector, { type Profiler } from 'node:inspector/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import postgres from 'postgres'
import type { Figures } from './goals.ts'
import { untilLanded } from './rig.ts'
import type { BenchServer } from './servers.ts'
import { print, table } from './tables.ts'

const source = path.resolve(import.meta.dirname, '../src')
/** Where a delivery is received, landed and given its position in the feed. */
const rooms = ['receiver/intake/', 'receiver/landing/', 'receiver/feeding/']
/** These run the same lines without a delivery, so V8 does not show that they take part. */
const unseen = ['receiver/feeding/add-change.ts', 'receiver/feeding/sequencer.ts']
const intervalMs = 2000

/** The files that one ordinary delivery passes through: lines of them run for it that do not run without a delivery. */
export async function benchWay(server: BenchServer): Promise<Figures> {
  const session = new inspector.Session()
  session.connect()
  await session.post('Profiler.enable')
  // Before the receiver is loaded, so that V8 counts each block.
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true })
  const { deliver, okAudio } = await import('../test/support/webhooks.ts')
  const { startTestReceiver } = await import('../test/support/receiver.ts')
  const { migrate } = await import('../src/platform/postgres/migrate.ts')
  const { migrations } = await import('../src/receiver/domain/migrations.ts')
  const databaseUrl = await server.createDatabase()
  await migrate({ url: databaseUrl, ...migrations })
  const receiver = await startTestReceiver({ databaseUrl })
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => {} })
  const during = async (work: () => Promise<unknown>) => {
    await session.post('Profiler.takePreciseCoverage')
    await work()
    await delay(intervalMs)
    return linesRun((await session.post('Profiler.takePreciseCoverage')).result)
  }
  const deliverOne = async () => {
    const { status } = await deliver(receiver.webhookUrl, okAudio().body)
    if (status !== 200) throw new Error(`the delivery was answered ${status}`)
    await untilLanded(sql)
  }
  try {
    // The first ones prepare connections and statements.
    await during(deliverOne)
    await during(deliverOne)
    const idle = await during(async () => {})
    const way = await during(deliverOne)
    const files = [...way].map(
      ([file, lines]) => [file, [...lines].filter((line) => !idle.get(file)?.has(line))] as const,
    )
    const passed = files.filter(([file, lines]) => rooms.some((room) => file.startsWith(room)) && lines.length > 0)
    const rows = await Promise.all(
      [...new Set([...passed.map(([file]) => file), ...unseen])]
        .sort()
        .map(async (file) => [file, await linesOf(file)] as const),
    )
    const all = rows.reduce((sum, [, lines]) => sum + lines, 0)
    print(
      table(
        'Files that an ordinary delivery passes through, from intake to feed',
        ['', 'lines'],
        [...rows, [`${rows.length} files`, all]],
      ),
    )
    return {}
  } finally {
    await receiver.stop()
    await sql.end({ timeout: 5 })
    await server.dropDatabase(databaseUrl)
    session.disconnect()
  }
}

async function linesOf(file: string): Promise<number> {
  return (await fs.readFile(path.join(source, file), 'utf8')).trimEnd().split('\n').length
}

/** The lines of each file of `src` that ran inside of functions. Node strips the types in place, so offsets are those of the file. */
async function linesRun(scripts: readonly Profiler.ScriptCoverage[]): Promise<Map<string, Set<number>>> {
  const run = new Map<string, Set<number>>()
  for (const { url, functions } of scripts) {
    const file = url.startsWith('file:') ? path.relative(source, fileURLToPath(url)) : '..'
    if (file.startsWith('..')) continue
    const text = await fs.readFile(path.join(source, file), 'utf8')
    const ran = new Uint8Array(text.length)
    // Outer blocks come before those within them. The first function is the module itself.
    for (const { functionName, ranges } of functions)
      if (functionName !== '' || ranges[0]?.startOffset !== 0)
        for (const { count, startOffset, endOffset } of ranges) ran.fill(count > 0 ? 1 : 0, startOffset, endOffset)
    const lines = new Set<number>()
    let line = 0
    for (let at = 0; at < text.length; at += 1) {
      if (text[at] === '\n') line += 1
      else if (ran[at] === 1 && text[at] !== ' ') lines.add(line)
    }
    if (lines.size > 0) run.set(file, lines)
  }
  return run
}
