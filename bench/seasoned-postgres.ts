import postgres from 'postgres'
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../src/laptop/embedded-postgres.ts'
import { createLogger } from '../src/runtime/logger.ts'

/** Of 16 MB: what `min_wal_size` keeps. */
const recycledFiles = 62

/**
 * A Postgres as one finds it after a few busy minutes: it writes over old files
 * of its log. A new one has to make each of them first, 16 MB of zeros and an
 * fsync, about once a second under this load, while every commit waits.
 */
export async function startSeasonedPostgres(folder: string): Promise<EmbeddedPostgres> {
  const server = await startEmbeddedPostgres({ dataDir: folder, logger: createLogger('warn'), settings: { min_wal_size: '1GB' } })
  const sql = postgres(server.url, { max: 1, onnotice: () => {} })
  try {
    for (let file = 0; file < recycledFiles; file += 1) {
      await sql`select pg_logical_emit_message(false, 'bench', '')`
      await sql`select pg_switch_wal()`
    }
    // Renames what is used up, for use again.
    await sql`checkpoint`
    return server
  } catch (error) {
    await server.stop()
    throw error
  } finally {
    await sql.end()
  }
}
