import { sql, type SQL } from './drizzle.ts'

const sizes = [1, 10, 100, 1000]

/**
 * For the `limit` of rows that a statement is given as JSON: about as many as there are, in the text
 * itself. It tells the planner, who would expect 100 and read whole tables for one, and who sees no
 * parameters when he makes a plan that is kept. In steps, since each is a text of its own.
 */
export function atMost(rows: number): SQL {
  return sql.raw(String(sizes.find((size) => size >= rows) ?? rows))
}
