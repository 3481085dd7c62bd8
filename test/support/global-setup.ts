import fs from 'node:fs/promises'
import path from 'node:path'
import chromium from '@sparticuz/chromium'
import postgres from 'postgres'
import type { TestProject } from 'vitest/node'
import { startEmbeddedPostgres } from '../../src/laptop/embedded-postgres.ts'
import { createLogger } from '../../src/platform/logger.ts'
import { migrate } from '../../src/platform/postgres/migrate.ts'
import { createPool } from '../../src/platform/postgres/postgres.ts'
import { ensurePartitions } from '../../src/receiver/upkeep/arrival-partitions.ts'
import { findPackagedPostgres, initializeCluster, startPackagedPostgres } from './packaged-postgres.ts'
import { quickFolder } from './quick-folder.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    postgresUrl: string
    /** Of a PostgreSQL as this machine's packages have it, with JIT; empty where there is none. */
    packagedPostgresUrl: string
    /** The folder of its programs, for tests that start more servers. */
    packagedBinaries: string
    /** A cluster of it that was never started, to be copied. */
    packagedTemplate: string
  }
}

// Every worker, and every program that a test starts, is compiled from the same files.
process.env['NODE_COMPILE_CACHE'] ??= path.resolve(import.meta.dirname, '../../node_modules/.cache/compiled')

const settings = { fsync: 'off', full_page_writes: 'off', max_connections: '400', max_wal_size: '256MB' }

/** One PostgreSQL for the run, with a migrated template that each test file clones. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  // Unpacked once, before the workers: one that starts the file while another writes it would fail.
  await chromium.executablePath()
  const within = await quickFolder()
  const dataDir = await fs.mkdtemp(path.join(within, 'mediadock-test-'))
  const server = await startEmbeddedPostgres({
    dataDir,
    logger: createLogger('silent'),
    // Durability against power loss is not tested here. Chaos tests start other servers.
    settings,
  })
  // Nor does the packaged one, which is otherwise as it comes.
  const binaries = await findPackagedPostgres()
  const templateDir = await fs.mkdtemp(path.join(within, 'mediadock-template-'))
  const template = path.join(templateDir, 'data')
  if (binaries !== undefined) await initializeCluster(binaries, template)
  const packaged =
    binaries === undefined ? undefined : await startPackagedPostgres({ binaries, template, settings, within })
  if (packaged) await makeDatabase(packaged.url)
  else process.stderr.write('no PostgreSQL is installed on this machine: what needs a packaged one is skipped\n')
  await makeTemplate(server.url)
  if (packaged) await makeTemplate(packaged.url.replace(/postgres$/, 'mediadock'))
  project.provide('postgresUrl', server.url.replace(/mediadock$/, 'postgres'))
  project.provide('packagedPostgresUrl', packaged?.url ?? '')
  project.provide('packagedBinaries', binaries ?? '')
  project.provide('packagedTemplate', template)
  return async () => {
    await server.stop()
    await packaged?.remove()
    for (const folder of [dataDir, templateDir]) await fs.rm(folder, { recursive: true, force: true })
  }
}

async function makeDatabase(adminUrl: string): Promise<void> {
  const admin = postgres(adminUrl, { max: 1, onnotice: () => {} })
  await admin`create database mediadock`
  await admin.end()
}

async function makeTemplate(url: string): Promise<void> {
  const root = path.resolve(import.meta.dirname, '../..')
  for (const [program, schema] of [
    ['receiver', 'mediadock'],
    ['provider', 'provider'],
  ] as const) {
    const folder = path.join(root, 'drizzle', program)
    if (await fs.stat(folder).catch(() => undefined)) await migrate({ url, schema, folder })
  }
  // Each receiver would make the days of the arrival log anew in its clone, at its start.
  const receiver = createPool({ url, max: 1 })
  await ensurePartitions(receiver.db, new Date())
  await receiver.close()
  const admin = postgres(url.replace(/mediadock$/, 'postgres'), { max: 1, onnotice: () => {} })
  await admin`alter database mediadock with is_template true`
  await hashPasswordOnce(admin, decodeURIComponent(new URL(url).password))
  await admin.end()
}

/** Each of the many thousand connections hashes it 4096 times otherwise. PostgreSQL 15 cannot do without. */
async function hashPasswordOnce(admin: postgres.Sql, password: string): Promise<void> {
  const [row] = await admin`select current_setting('scram_iterations', true) as iterations`
  if (row?.['iterations'] === null) return
  await admin.unsafe(`set scram_iterations = 1; alter role current_user password '${password}'`)
}
