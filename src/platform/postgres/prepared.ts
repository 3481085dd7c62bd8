import type postgres from 'postgres'
import type { SQL } from './drizzle.ts'
import { databaseErrorOf } from './errors.ts'
import { clientOf, databaseOver, type Database } from './postgres.ts'

/** For each client that ends at Postgres itself and not at a pooler, a database that prepares its statements. */
const preparing = new WeakMap<postgres.Sql, Promise<Database | undefined>>()

/**
 * Runs a frequent statement as a prepared one. Postgres keeps it parsed, and it takes one round trip instead of two.
 * Use it for few texts, because every connection keeps every text. `keepsPlans` (postgres.ts) decides about its plan.
 * Behind a pooler in transaction mode, each run may use another server connection, so the statement is not prepared
 * there. Do not use it in a transaction: it takes any connection of the pool.
 */
export async function executePrepared<Row extends Record<string, unknown>>(db: Database, query: SQL) {
  try {
    return await ((await preparingOver(clientOf(db))) ?? db).execute<Row>(query)
  } catch (error) {
    throw databaseErrorOf(error)
  }
}

/** Undefined behind a pooler, which reports another process id than that of the server behind it. */
async function preparingOver(client: postgres.Sql): Promise<Database | undefined> {
  let known = preparing.get(client)
  if (known === undefined) {
    known = client
      .unsafe<{ pid: number }[]>('select pg_backend_pid() as pid')
      .then((rows) => (rows[0]?.pid === rows.state.pid ? databaseOver(client, { prepare: true }) : undefined))
    preparing.set(client, known)
  }
  try {
    return await known
  } catch {
    // Postgres is unreachable. The statement itself will report that.
    preparing.delete(client)
    return undefined
  }
}
