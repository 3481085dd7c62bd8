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

/**
 * A PostgreSQL of each kind for the run, with a migrated template that each test file clones. No test runs yet, so all
 * of it is made at once.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const within = await quickFolder()
  const [embedded, packaged] = await Promise.all([
    makeEmbedded(within),
    makePackaged(within),
    // Unpacked once, before the workers: one that starts the file while another writes it would fail.
    chromium.executablePath(),
  ])
  project.provide('postgresUrl', embedded.url.replace(/mediadock$/, 'postgres'))
  project.provide('packagedPostgresUrl', packaged.server?.url ?? '')
  project.provide('packagedBinaries', packaged.binaries ?? '')
  project.provide('packagedTemplate', packaged.template)
  return async () => {
    await embedded.stop()
    await packaged.server?.remove()
    for (const folder of [embedded.dataDir, packaged.folder]) await fs.rm(folder, { recursive: true, force: true })
  }
}

/** Durability against power loss is not tested here. Chaos tests start other servers. */
async function makeEmbedded(within: string) {
  const dataDir = await fs.mkdtemp(path.join(within, 'mediadock-test-'))
  const server = await startEmbeddedPostgres({ dataDir, logger: createLogger('silent'), settings })
  await makeTemplate(server.url)
  return { ...server, dataDir }
}

/** The server as people have it, but for the settings above. */
async function makePackaged(within: string) {
  const binaries = await findPackagedPostgres()
  const folder = await fs.mkdtemp(path.join(within, 'mediadock-template-'))
  const template = path.join(folder, 'data')
  if (binaries === undefined) {
    process.stderr.write('no PostgreSQL is installed on this machine: what needs a packaged one is skipped\n')
    return { binaries, folder, template }
  }
  await initializeCluster(binaries, template)
  const server = await startPackagedPostgres({ binaries, template, settings, within })
  await makeDatabase(server.url)
  await makeTemplate(server.url.replace(/postgres$/, 'mediadock'))
  return { binaries, folder, template, server }
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
