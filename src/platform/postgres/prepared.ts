import type postgres from 'postgres'
import type { SQL } from './drizzle.ts'
import { checkAnswer } from './errors.ts'
import { clientOf, statementOf, type Database } from './postgres.ts'

/** For each client, whether its connections end at Postgres itself and not at a pooler. */
const direct = new WeakMap<postgres.Sql, Promise<boolean>>()

/**
 * Runs a frequent statement as a prepared one. Postgres keeps it parsed, and it takes one round trip instead of two.
 * Use it for few texts, because every connection keeps every text. `keepsPlans` (postgres.ts) decides about its plan.
 * Behind a pooler in transaction mode, each run may use another server connection, so the statement is not prepared
 * there. Do not use it in a transaction: it takes any connection of the pool.
 */
export async function executePrepared<Row extends Record<string, unknown>>(db: Database, query: SQL): Promise<Row[]> {
  const client = clientOf(db)
  const { text, params } = statementOf(query)
  return checkAnswer(await client.unsafe<Row[]>(text, params, { prepare: await isDirect(client) }), text)
}

/** True without a pooler. A pooler reports another process id than that of the server behind it. */
async function isDirect(client: postgres.Sql): Promise<boolean> {
  let known = direct.get(client)
  if (known === undefined) {
    known = client
      .unsafe<{ pid: number }[]>('select pg_backend_pid() as pid')
      .then((rows) => rows[0]?.pid === rows.state.pid)
    direct.set(client, known)
  }
  try {
    return await known
  } catch {
    // Postgres is unreachable. The statement itself will report that.
    direct.delete(client)
    return false
  }
}
