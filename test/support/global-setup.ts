import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import postgres from 'postgres'
import type { TestProject } from 'vitest/node'
import { startEmbeddedPostgres } from '../../src/runtime/embedded-postgres.ts'
import { createLogger } from '../../src/runtime/logger.ts'
import { migrate } from '../../src/runtime/migrate.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    postgresUrl: string
  }
}

/** One PostgreSQL for the run, with a migrated template that each test file clones. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const dataDir = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-test-'))
  const server = await startEmbeddedPostgres({
    dataDir,
    logger: createLogger('silent'),
    // The tests never pull the plug on the machine itself; chaos tests start servers of their own.
    settings: { fsync: 'off', max_connections: '400' },
  })
  const root = path.resolve(import.meta.dirname, '../..')
  for (const [program, schema] of [['receiver', 'mediadock'], ['provider', 'provider']] as const) {
    const folder = path.join(root, 'drizzle', program)
    if (await fs.stat(folder).catch(() => undefined)) await migrate({ url: server.url, schema, folder })
  }
  const admin = postgres(server.url.replace(/mediadock$/, 'postgres'), { max: 1, onnotice: () => {} })
  await admin`alter database mediadock with is_template true`
  await admin.end()
  project.provide('postgresUrl', server.url.replace(/mediadock$/, 'postgres'))
  return async () => {
    await server.stop()
    await fs.rm(dataDir, { recursive: true, force: true })
  }
}
