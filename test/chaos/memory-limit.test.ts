import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { it, onTestFinished } from 'vitest'
import { preferredServer, withTestDatabase } from '../support/database.ts'
import { countBooks, untilInboxIsEmpty, watchEffects } from './books.ts'
import { long } from './length.ts'
import { withReceiverProcess } from './receiver-process.ts'
import { watchResident } from './resident.ts'
import { longestSilenceMs, startLoad } from './steady-load.ts'
import { inTable, notShown } from './table.ts'

const mebibyte = 1_048_576
const limitMebibytes = Number(process.env['CHAOS_MEBIBYTES'] ?? 768)
const perSecond = 200
/** Of all that a stranger does, what costs most memory (test/chaos/stranger.ts). */
const rows = ['held bodies of 1 MiB', 'forged bodies of 1 MiB', 'pipelined forgeries, opened first']
const rowSeconds = 25
const stranger = path.resolve(import.meta.dirname, 'stranger.ts')

type ControlGroup = { folder: string; mostMebibytes: () => Promise<number>; kills: () => Promise<number> }

/** A control group with a limit of memory, of either version, as a container has one; undefined where none may be made. */
async function withControlGroup(): Promise<ControlGroup | undefined> {
  const name = `mediadock-chaos-${process.pid}`
  const versions = [
    {
      root: '/sys/fs/cgroup/memory',
      limit: 'memory.limit_in_bytes',
      most: 'memory.max_usage_in_bytes',
      events: 'memory.oom_control',
    },
    { root: '/sys/fs/cgroup', limit: 'memory.max', most: 'memory.peak', events: 'memory.events' },
  ]
  for (const { root, limit, most, events } of versions) {
    const folder = path.join(root, name)
    const read = async (file: string) => await fs.readFile(path.join(folder, file), 'utf8')
    try {
      await fs.mkdir(folder)
      onTestFinished(() => fs.rmdir(folder))
      await fs.writeFile(path.join(folder, limit), String(limitMebibytes * mebibyte))
      return {
        folder,
        mostMebibytes: async () => Number(await read(most)) / mebibyte,
        kills: async () => Number(/oom_kill (\d+)/.exec(await read(events))?.[1]),
      }
    } catch {
      // The other version, or none.
    }
  }
  return undefined
}

it.skipIf(!long)(
  `a container of ${limitMebibytes} MiB suffices under load and under attack by a stranger`,
  { timeout: 300_000 },
  async (test) => {
    const fault = `a container of ${limitMebibytes} MiB, under load and hostile senders`
    const goal = 'not killed; senders are answered'
    const group = await withControlGroup()
    if (group === undefined) {
      await notShown(fault, goal, 'this machine lets us make no control group')
      return test.skip('this machine lets us make no control group')
    }
    return inTable(fault, goal, async () => {
      const { url, sql } = await withTestDatabase(preferredServer)
      await watchEffects(sql)
      const receiver = await withReceiverProcess(url, {}, { controlGroup: group.folder })
      const pid = receiver.pid()
      const resident = watchResident(receiver.pid)
      const load = startLoad({ urls: [receiver.url], perSecond, atOnce: 64 })
      const most: string[] = []
      for (const row of rows) {
        resident.forget()
        await promisify(execFile)(process.execPath, [stranger, receiver.url, row, String(rowSeconds)])
        most.push(`${row} ${Math.round(resident.most())}`)
      }
      const { acknowledged, refused, broken, slowestMs } = await load.end()
      const isAlive = receiver.isRunning() && receiver.pid() === pid
      await untilInboxIsEmpty(sql)
      const books = await countBooks(sql, acknowledged)
      const [peak, kills] = [await group.mostMebibytes(), await group.kills()]
      return {
        rounds: rows.length,
        acknowledged: acknowledged.length,
        ...books,
        silenceMs: longestSilenceMs(acknowledged),
        measured: `the control group at most ${Math.round(peak)} MiB; resident: ${most.join(', ')} MiB; ${refused + broken} not acknowledged at once, slowest answer ${(slowestMs / 1000).toFixed(1)} s`,
        met: books.lost === 0 && books.doubled === 0 && isAlive && kills === 0 && peak < limitMebibytes * 0.95,
      }
    })
  },
)
