import type postgres from 'postgres'
import { sql, type SQL } from './drizzle.ts'
import { databaseErrorOf, isConnectionLost } from './errors.ts'
import { clientOf, databaseOn, type Database } from './postgres.ts'

/** SQL condition: this statement runs in a dry run. */
export const isTried = sql`coalesce(current_setting('mediadock.tried', true) = 'on', false)`

/**
 * Runs a statement completely, with its triggers and deferred checks, and rolls it back. A statement that must never
 * persist checks `isTried`, because a lost connection may have been reopened outside the transaction.
 */
export async function tried<Row extends Record<string, unknown>>(db: Database, statement: SQL) {
  const connection = await clientOf(db).reserve()
  const alone = databaseOn(connection)
  let usable = true
  try {
    await alone.execute(`begin; set local mediadock.tried = 'on'`)
    const rows = await alone.execute<Row>(statement)
    await alone.execute('set constraints all immediate')
    return rows
  } catch (error) {
    // A lost connection has already returned to the pool.
    usable = !isConnectionLost(error)
    throw databaseErrorOf(error)
  } finally {
    if (usable) await takeBack(connection)
  }
}

async function takeBack(connection: postgres.ReservedSql): Promise<void> {
  try {
    await connection.unsafe('rollback')
    connection.release()
  } catch {
    // The connection was lost, so it is rolled back and already in the pool.
  }
}
