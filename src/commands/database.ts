import path from 'node:path'
import { isProduction, readDatabaseUrl, type Program } from '../config/config.ts'
import { findEmbeddedPostgres } from '../laptop/embedded-postgres.ts'
import { dataDir } from '../laptop/local.ts'
import { placeOfUrl } from '../platform/postgres/url.ts'
import { isGiven, type ProcessEnvironment } from '../platform/settings.ts'

/** No database is named, and none runs in this folder. Exit code 78. */
export class NoDatabaseError extends Error {
  override name = 'NoDatabaseError'
  code = 'no_database' as const
}

/**
 * Gives `work` the database of a program: the one that is set, else the embedded one of the `start` that runs in this
 * folder, which it names on stderr. Starts none: an answer from an empty database would look like good news.
 */
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
      `DATABASE_URL is not set, and no mediadock start runs in ${folder}: set it, or run npm start there first`,
    )
  }
  process.stderr.write(
    `mediadock: DATABASE_URL is not set, using that of the mediadock start here: ${placeOfUrl(running)}\n`,
  )
  return work(running)
}
