import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import postgres from 'postgres'
import { it, onTestFinished } from 'vitest'
import { eventually } from '../support/eventually.ts'
import { describeOnPackaged, withPackagedPostgres } from '../support/own-packaged-postgres.ts'
import { countBooks, untilInboxIsEmpty, watchEffects } from './books.ts'
import { limitMs, long, roundsOf } from './length.ts'
import { withReceiverProcess } from './receiver-process.ts'
import { firstAfter, longestSilenceMs, startLoad } from './steady-load.ts'
import { inTable, notShown } from './table.ts'

const run = promisify(execFile)
const rounds = long ? roundsOf(3) : 1
const diskMebibytes = 256
const perSecond = 200
const wellWithinMs = limitMs(10_000)
const goal = '503; nothing lost; receiving again ≤ 10 s'

/** A disk that can be filled: a separate file system in memory. Undefined if mounting is not permitted. */
async function withSmallDisk(): Promise<string | undefined> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-disk-'))
  const mounted = await run('mount', ['-t', 'tmpfs', '-o', `size=${diskMebibytes}m,mode=755`, 'tmpfs', folder]).then(
    () => true,
    () => false,
  )
  onTestFinished(async () => {
    if (mounted) await run('umount', ['-l', folder])
    await fs.rm(folder, { recursive: true, force: true })
  })
  return mounted ? folder : undefined
}

/** Takes all that is free. */
async function fill(folder: string): Promise<string> {
  const file = path.join(folder, 'filler')
  const handle = await fs.open(file, 'w')
  for (const size of [1_048_576, 4096]) {
    const piece = Buffer.alloc(size)
    while (
      await handle.write(piece).then(
        ({ bytesWritten }) => bytesWritten === size,
        () => false,
      )
    );
  }
  await handle.close()
  return file
}

describeOnPackaged('the disk of Postgres', () => {
  it(
    `full and freed again, ${rounds} times, loses nothing that was acknowledged`,
    { timeout: 180_000 },
    async (test) => {
      const disk = await withSmallDisk()
      if (disk === undefined) {
        await notShown('disk full, then freed', goal, 'this machine mounts no file system for us')
        return test.skip('this machine mounts no file system for us')
      }
      return inTable('disk full, then freed', goal, async () => {
        const server = await withPackagedPostgres({
          within: disk,
          settings: { min_wal_size: '32MB', max_wal_size: '64MB' },
        })
        const receiver = await withReceiverProcess(server.url)
        const client = () => {
          const sql = postgres(server.url, { max: 1, onnotice: () => {} })
          onTestFinished(() => sql.end({ timeout: 1 }))
          return sql
        }
        await watchEffects(client())
        const load = startLoad({ urls: [receiver.url], perSecond })
        let [slowest, crashes] = [0, 0]
        for (let round = 1; round <= rounds; round += 1) {
          await delay(long ? 1500 : 300)
          const before = load.tally.refused
          const filler = await fill(disk)
          // Postgres may continue for a while in space that it has allocated.
          await eventually(() => load.tally.refused > before + 10)
          await delay(long ? 2000 : 200)
          await fs.rm(filler)
          // A server without room for its WAL stops, and is started again after the disk is freed.
          if (server.pid() === 0) {
            crashes += 1
            await server.start()
          }
          const at = Date.now()
          await eventually(
            async () => firstAfter(load.tally.acknowledged, at) < Infinity && (await receiver.ready()) === 200,
            60_000,
          )
          slowest = Math.max(slowest, Date.now() - at)
        }
        const { acknowledged, refused, slowestMs } = await load.end()
        const sql = client()
        await untilInboxIsEmpty(sql)
        const books = await countBooks(sql, acknowledged)
        return {
          rounds,
          acknowledged: acknowledged.length,
          ...books,
          silenceMs: longestSilenceMs(acknowledged),
          measured: `receiving again after ${(slowest / 1000).toFixed(1)} s; ${refused} × 503, slowest answer ${(slowestMs / 1000).toFixed(1)} s; Postgres ended itself ${crashes} times`,
          met:
            books.lost === 0 &&
            books.doubled === 0 &&
            slowest <= wellWithinMs &&
            receiver.isRunning() &&
            slowestMs <= limitMs(5000),
        }
      })
    },
  )
})
