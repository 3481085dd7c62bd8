import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import postgres from 'postgres'
import { onTestFinished } from 'vitest'
import { startEmbeddedPostgres } from '../../../src/laptop/embedded-postgres.ts'
import { createLogger } from '../../../src/platform/logger.ts'
import { killAllIn } from '../../platform/support/processes.ts'

const logger = createLogger('silent')
/** A program that runs an embedded PostgreSQL until it is ended. */
export const holderScript = path.join(import.meta.dirname, 'postgres-holder.ts')

export async function temporaryFolder(): Promise<string> {
  const made = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-embedded-'))
  onTestFinished(async () => {
    await killAllIn(made)
    await fs.rm(made, { recursive: true, force: true, maxRetries: 10 })
  })
  return made
}

/** A data folder below one that only its owner may walk through, as root's home is. */
export async function privateFolder(): Promise<string> {
  const home = path.join(await temporaryFolder(), 'home')
  await fs.mkdir(home, { mode: 0o700 })
  const dataDir = path.join(home, '.data')
  await fs.mkdir(dataDir)
  return dataDir
}

let template: Promise<string> | undefined

/** The same, with a cluster that was made once and stopped in order. */
export async function madeFolder(): Promise<string> {
  template ??= (async () => {
    const made = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-embedded-'))
    const server = await startEmbeddedPostgres({ dataDir: made, logger })
    await server.stop()
    return made
  })()
  const [from, to] = [await template, await privateFolder()]
  await promisify(execFile)('cp', ['-Rp', `${from}/.`, to])
  return to
}
export async function removeTemplate(): Promise<void> {
  if (template) await fs.rm(await template, { recursive: true, force: true, maxRetries: 10 })
  template = undefined
}

export async function start(dataDir: string) {
  const server = await startEmbeddedPostgres({ dataDir, logger })
  onTestFinished(server.stop)
  return server
}

export async function query<T>(url: string, work: (sql: postgres.Sql) => Promise<T>): Promise<T> {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  try {
    return await work(sql)
  } finally {
    await sql.end({ timeout: 1 })
  }
}

export const serverPid = async (dataDir: string) =>
  Number((await fs.readFile(path.join(dataDir, 'postgres/postmaster.pid'), 'utf8')).split('\n')[0])
