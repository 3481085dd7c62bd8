import { sql, type SQL } from './drizzle.ts'

/**
 * The rows that one statement of upkeep, of an export or of a reader of logs takes: enough that the rows cost more than
 * the statement, and few enough that locks are held only for a moment.
 */
export const statementRows = 1000

const sizes = [1, 10, 100, statementRows]

/**
 * Returns a literal for the `limit` of rows that a statement receives as JSON. The planner reads it as a row estimate.
 * Without it, the planner expects 100 rows and may scan a whole table to find one. The number is rounded up in steps up
 * to 1000, because each literal is a different statement text.
 */
export function atMost(rows: number): SQL {
  return sql.raw(String(sizes.find((size) => size >= rows) ?? rows))
}
