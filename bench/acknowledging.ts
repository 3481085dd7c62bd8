import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import postgres from 'postgres'
import { migrate } from '../src/runtime/postgres/migrate.ts'
import { startExpressProcess, startOneByOneProcess, startReceiverProcess, type Contender } from './contenders.ts'
import { measureLandings } from './landing-latency.ts'
import { startLoadGenerator } from './load.ts'
import { report } from './report.ts'
import { startSeasonedPostgres } from './seasoned-postgres.ts'
import { measureThroughput } from './throughput.ts'

/** How fast deliveries are acknowledged and land, beside what HTTP alone costs: see docs/benchmarks.md. */
export async function benchAcknowledging(quick: boolean): Promise<void> {
  const size = quick ? { rounds: 5, secondsPerRound: 2, samples: 200 } : { rounds: 9, secondsPerRound: 5, samples: 1000 }
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-bench-'))
  const server = await startSeasonedPostgres(folder)
  const generator = startLoadGenerator()
  const contenders = new Map<string, Contender>()
  const sql = postgres(server.url, { max: 2, onnotice: () => {} })
  try {
    contenders.set('receiver', await startReceiverProcess(server.url, folder))
    contenders.set('Express + HMAC, no database', await startExpressProcess())
    contenders.set(
      'the receiver, one statement per request',
      await startOneByOneProcess(await databaseLike(server.url, sql, 'one_by_one'), folder),
    )
    contenders.set(
      'Express + HMAC, one insert per request',
      await startExpressProcess(await databaseLike(server.url, sql, 'one_insert_each')),
    )

    const landings = await measureLandings(contenders.get('receiver')?.webhooksUrl ?? '', sql, size.samples)
    const rows = await measureThroughput({ contenders, generator, sql, ...size })
    process.stdout.write(`\n${report(rows, landings)}`)
  } finally {
    generator.stop()
    await sql.end()
    await Promise.all([...contenders.values()].map((contender) => contender.stop()))
    await server.stop()
    await fs.rm(folder, { recursive: true, force: true })
  }
}

/** A database of its own on the same server, with the same tables and indexes. */
async function databaseLike(serverUrl: string, sql: postgres.Sql, name: string): Promise<string> {
  await sql`create database ${sql(name)}`
  const url = serverUrl.replace(/mediadock$/, name)
  await migrate({ url, schema: 'mediadock', folder: path.resolve(import.meta.dirname, '../drizzle/receiver') })
  return url
}
