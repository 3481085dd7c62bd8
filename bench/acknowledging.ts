import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import postgres from 'postgres'
import { startEmbeddedPostgres } from '../src/runtime/embedded-postgres.ts'
import { createLogger } from '../src/runtime/logger.ts'
import { migrate } from '../src/runtime/migrate.ts'
import { startExpressProcess, startReceiverProcess, type Contender } from './contenders.ts'
import { measureLandings } from './landing-latency.ts'
import { startLoadGenerator } from './load.ts'
import { report } from './report.ts'
import { measureThroughput } from './throughput.ts'

/** How fast deliveries are acknowledged and land, beside what HTTP alone costs: see docs/benchmarks.md. */
export async function benchAcknowledging(quick: boolean): Promise<void> {
  const size = quick ? { rounds: 3, secondsPerRound: 3, samples: 200 } : { rounds: 9, secondsPerRound: 5, samples: 1000 }
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-bench-'))
  const server = await startEmbeddedPostgres({ dataDir: folder, logger: createLogger('warn') })
  const generator = startLoadGenerator()
  const contenders = new Map<string, Contender>()
  const sql = postgres(server.url, { max: 2, onnotice: () => {} })
  try {
    contenders.set('receiver', await startReceiverProcess(server.url, folder))
    contenders.set('Express + HMAC, no database', await startExpressProcess())
    contenders.set('Express + HMAC, one insert per request', await startExpressProcess(await databaseForInserts(server.url, sql)))

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
async function databaseForInserts(serverUrl: string, sql: postgres.Sql): Promise<string> {
  await sql`create database one_insert_each`
  const url = serverUrl.replace(/mediadock$/, 'one_insert_each')
  await migrate({ url, schema: 'mediadock', folder: path.resolve(import.meta.dirname, '../drizzle/receiver') })
  return url
}
