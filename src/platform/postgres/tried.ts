import { sql, type SQL } from './drizzle.ts'
import { type Database, onOneConnection } from './postgres.ts'

export const isTried = sql`coalesce(current_setting('mediadock.tried', true) = 'on', false)`

/**
 * Runs a statement completely, with its triggers and deferred checks, and rolls it back. A statement that must never
 * persist checks `isTried`, because the driver may have replaced a lost connection, outside the transaction.
 */
export async function tried<Row extends Record<string, unknown>>(db: Database, statement: SQL) {
  return onOneConnection(db, async (alone) => {
    await alone.execute(`begin; set local mediadock.tried = 'on'`)
    const rows = await alone.execute<Row>(statement)
    await alone.execute('set constraints all immediate')
    return rows
  })
}
