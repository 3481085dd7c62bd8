import type postgres from 'postgres'
import { sql, type SQL } from './drizzle.ts'
import { databaseErrorOf, isConnectionLost } from './errors.ts'
import { clientOf, databaseOn, type Database } from './postgres.ts'

/** Whether a statement is one that is only tried; elsewhere, on a connection that was opened anew above all, it is not. */
export const isTried = sql`coalesce(current_setting('mediadock.tried', true) = 'on', false)`

/**
 * Runs a statement to its end, with its triggers and with what is checked only at a commit, and
 * takes all of it back. A statement that must never stand refuses itself where `isTried`
 * does not hold: the connection may have been lost, and opened again, in between.
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
    // A lost connection has gone back to the pool by itself, to be opened again.
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
    // Lost, and so rolled back, and in the pool already.
  }
}
