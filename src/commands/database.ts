import path from 'node:path'
import { isProduction, readDatabaseUrl, type Program } from '../config/config.ts'
import { findEmbeddedPostgres } from '../laptop/embedded-postgres.ts'
import { dataDir } from '../laptop/local.ts'
import { createPool, type Database } from '../platform/postgres/postgres.ts'
import { placeOfUrl } from '../platform/postgres/url.ts'
import { isGiven, type ProcessEnvironment } from '../platform/settings.ts'

/** No database is configured, and no embedded one runs in this folder. Exit code 78. */
export class NoDatabaseError extends Error {
  override name = 'NoDatabaseError'
  code = 'no_database' as const
}

/** Calls `work` with the configured database URL, else that of a `start` in this folder. Never starts a database. */
export async function withDatabase<T>(
  env: ProcessEnvironment,
  program: Program,
  work: (url: string) => Promise<T>,
): Promise<T> {
  const given = (program === 'provider' && isGiven(env, 'PROVIDER_DATABASE_URL')) || isGiven(env, 'DATABASE_URL')
  if (given || isProduction(env)) return work(readDatabaseUrl(env, program, undefined))
  const running = await findEmbeddedPostgres(dataDir)
  if (running === undefined) {
    const folder = path.dirname(dataDir)
    throw new NoDatabaseError(
      `DATABASE_URL is not set, and no mediadock start runs in ${folder}. Set it, or run npm start there first.`,
    )
  }
  process.stderr.write(
    `mediadock: DATABASE_URL is not set. Using the mediadock start in this folder: ${placeOfUrl(running)}\n`,
  )
  return work(running)
}

/** Calls `work` with a connection pool of the receiver's database, then closes the pool. */
export async function withReceiverDatabase<T>(
  env: ProcessEnvironment,
  work: (db: Database, url: string) => Promise<T>,
): Promise<T> {
  return withDatabase(env, 'receiver', async (url) => {
    const pool = createPool({ url, max: 2 })
    try {
      return await work(pool.db, url)
    } finally {
      await pool.close()
    }
  })
}
