import { rmSync } from 'node:fs'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import postgres from 'postgres'
import { startEmbeddedPostgres } from '../src/laptop/embedded-postgres.ts'
import { createLogger } from '../src/platform/logger.ts'
import { findPackagedPostgres, startPackagedPostgres } from '../test/support/packaged-postgres.ts'
import { parentOf } from './processes.ts'

export const serverNames = ['embedded', 'packaged'] as const
export type ServerName = (typeof serverNames)[number]

/** A PostgreSQL that only this measurement uses. */
export type BenchServer = {
  name: ServerName
  /** As a heading has it. */
  words: string
  /** Of its first process. */
  pid: number
  /** As its superuser, to the database `postgres`. */
  adminUrl: string
  /** A new, empty database. */
  createDatabase: () => Promise<string>
  /** Includes pending writes and vacuum, so that nothing of one measurement affects the next. */
  dropDatabase: (url: string) => Promise<void>
  stop: () => Promise<void>
}

/** Otherwise both are as they come, but for what `--set` says: fsync on, 128 MB of shared buffers, and on the packaged one JIT. */
const usual = { min_wal_size: '1GB' }

/** Undefined where this machine has no such server. */
export async function startServer(
  name: ServerName,
  more: Record<string, string> = {},
): Promise<BenchServer | undefined> {
  const settings = { ...usual, ...more }
  const binaries = name === 'packaged' ? await findPackagedPostgres() : undefined
  if (name === 'packaged' && binaries === undefined) return undefined
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-bench-'))
  const starting =
    binaries === undefined
      ? startEmbeddedPostgres({ dataDir: folder, logger: createLogger('warn'), settings })
      : startPackagedPostgres({ binaries, settings })
  const started = await starting.catch(async (error: unknown) => {
    await fs.rm(folder, { recursive: true, force: true })
    throw new Error(`PostgreSQL does not start with ${JSON.stringify(settings)}`, { cause: error })
  })
  const folders = 'dataDir' in started ? [folder, path.dirname(started.dataDir)] : [folder]
  const stop = async () => {
    await ('remove' in started ? started.remove() : started.stop())
    await fs.rm(folder, { recursive: true, force: true })
  }
  const adminUrl = started.url.replace(/mediadock$/, 'postgres')
  const sql = postgres(adminUrl, { max: 1, onnotice: () => {} })
  let made = 0
  try {
    await season(sql)
    const [about] = await sql<{ version: string; jit: boolean; pid: number }[]>`
      select split_part(current_setting('server_version'), ' ', 1) as version, current_setting('jit') = 'on' and pg_jit_available() as jit, pg_backend_pid() as pid`
    const set = Object.entries(more).map(([name, value]) => `${name} ${value}`)
    const pid = await parentOf(about?.pid ?? 0)
    // An error or a signal must leave behind no server, and no gigabytes.
    const endWithUs = () => {
      process.kill(pid, 'SIGQUIT')
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 500)
      for (const one of folders) rmSync(one, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 })
    }
    if (pid > 0) process.once('exit', endWithUs)
    return {
      name,
      words: `${name} PostgreSQL ${about?.version}, ${[about?.jit ? 'with JIT' : 'without JIT', ...set].join(', ')}`,
      pid,
      adminUrl,
      createDatabase: async () => {
        const database = `bench_${(made += 1)}`
        await sql`create database ${sql(database)}`
        return adminUrl.replace(/postgres$/, database)
      },
      dropDatabase: async (url) => {
        await sql`drop database ${sql(new URL(url).pathname.slice(1))} with (force)`
      },
      stop: async () => {
        process.off('exit', endWithUs)
        await sql.end({ timeout: 5 })
        await stop()
      },
    }
  } catch (error) {
    await sql.end({ timeout: 5 })
    await stop()
    throw error
  }
}

/** Of 16 MB: what `min_wal_size` keeps. */
const recycledFiles = 62

/**
 * Makes it as one finds it after a few busy minutes: it writes over old files
 * of its log. A new one has to make each of them first, 16 MB of zeros and an
 * fsync, about once a second under this load, while every commit waits.
 */
async function season(sql: postgres.Sql): Promise<void> {
  for (let file = 0; file < recycledFiles; file += 1) {
    await sql`select pg_logical_emit_message(false, 'bench', '')`
    await sql`select pg_switch_wal()`
  }
  // Renames what is used up, for use again.
  await sql`checkpoint`
}
