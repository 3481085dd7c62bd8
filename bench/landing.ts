import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import postgres from 'postgres'
import { migrate } from '../src/runtime/postgres/migrate.ts'
import { startReceiverProcess } from './contenders.ts'
import { measureLandings } from './landing-latency.ts'
import { fillInbox, measureAtRate, measureBacklog } from './landing-load.ts'
import { startSeasonedPostgres } from './seasoned-postgres.ts'

const perSecond = 500

/** `npm run bench -- landing`: what landing costs where nothing has to be fetched. */
export async function benchLanding(quick: boolean): Promise<void> {
  const size = quick ? { samples: 200, seconds: 10, backlog: 20_000 } : { samples: 1000, seconds: 60, backlog: 100_000 }
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-bench-'))
  const server = await startSeasonedPostgres(folder)
  const sql = postgres(server.url, { max: 2, onnotice: () => {} })
  try {
    await migrate({ url: server.url, schema: 'mediadock', folder: path.resolve(import.meta.dirname, '../drizzle/receiver') })
    await fillInbox(sql, size.backlog)
    const receiver = await startReceiverProcess(server.url, folder)
    try {
      const { deliveries, landingsPerSecond } = await measureBacklog(sql, size.backlog)
      const alone = await measureLandings(receiver.webhooksUrl, sql, size.samples)
      const crowd = await measureAtRate(receiver.webhooksUrl, sql, { perSecond, seconds: size.seconds })
      const row = (what: string, { p50Ms, p99Ms }: { p50Ms: number; p99Ms: number }) =>
        `| ${what} | ${p50Ms.toFixed(1)} | ${p99Ms.toFixed(1)} |`
      process.stdout.write(
        [
          '',
          '| from acknowledgement to `results`, nothing to fetch | p50 ms | p99 ms |',
          '|---|---|---|',
          row(`one at a time, ${alone.samples} of them`, alone.fromAcknowledged),
          row(`${crowd.perSecond} a second, ${crowd.samples} of them`, crowd.fromAcknowledged),
          '',
          `An inbox of ${deliveries} is landed at ${Math.round(landingsPerSecond)} a second.`,
          '',
        ].join('\n'),
      )
    } finally {
      await receiver.stop()
    }
  } finally {
    await sql.end()
    await server.stop()
    await fs.rm(folder, { recursive: true, force: true })
  }
}
