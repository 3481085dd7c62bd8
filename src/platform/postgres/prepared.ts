import type postgres from 'postgres'
import type { SQL } from './drizzle.ts'
import { checkAnswer } from './errors.ts'
import { clientOf, statementOf, type Database } from './postgres.ts'

/** By client, whether its connections end at Postgres itself; undefined until the first of them has been checked. */
const direct = new WeakMap<postgres.Sql, Promise<boolean>>()

/**
 * Runs a statement that is run over and over with the same text: Postgres keeps
 * it parsed, and it takes one round trip where any other takes two. Whether its plan
 * is kept too is the pool's affair (`keepsPlans` in postgres.ts). For few texts only,
 * since every connection keeps every one.
 *
 * Behind a pooler in transaction mode each run may reach another server, which
 * does not know the statement: there it is run like any other. Not in a
 * transaction: it takes any connection of the pool.
 */
export async function executePrepared<Row extends Record<string, unknown>>(db: Database, query: SQL): Promise<Row[]> {
  const client = clientOf(db)
  const { text, params } = statementOf(query)
  return checkAnswer(await client.unsafe<Row[]>(text, params, { prepare: await isDirect(client) }), text)
}

/** A pooler tells its clients of a process of its own; the server behind it has another. */
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
    // Postgres is away; the statement itself fails by it.
    direct.delete(client)
    return false
  }
}
