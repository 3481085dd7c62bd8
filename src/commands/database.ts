import { isProduction, readDatabaseUrl, type Program } from '../config/config.ts'
import { migrationsOf } from '../config/migrations.ts'
import { findEmbeddedPostgres } from '../laptop/embedded-postgres.ts'
import { dataDir, openLocal } from '../laptop/local.ts'
import { createLogger } from '../runtime/logger.ts'
import { migrate } from '../runtime/postgres/migrate.ts'
import { isGiven, type ProcessEnvironment } from '../runtime/settings.ts'

/**
 * Gives `work` the database of a program: the one that is set, the embedded one
 * of a running `start` in this folder, or that one started for the length of the command.
 */
export async function withDatabase<T>(env: ProcessEnvironment, program: Program, work: (url: string) => Promise<T>): Promise<T> {
  const given = (program === 'provider' && isGiven(env, 'PROVIDER_DATABASE_URL')) || isGiven(env, 'DATABASE_URL')
  if (given || isProduction(env)) return work(readDatabaseUrl(env, program, undefined))

  const running = await findEmbeddedPostgres(dataDir)
  if (running) return work(running)
  const local = await openLocal(env, { wanted: [program], logger: createLogger('warn') })
  try {
    const url = readDatabaseUrl(env, program, local.defaults.databaseUrl)
    await migrate({ url, ...migrationsOf[program] })
    return await work(url)
  } finally {
    await local.close()
  }
}
