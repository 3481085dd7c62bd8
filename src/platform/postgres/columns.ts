import { type Column, getTableColumns, getViewSelectedFields, is, sql, type SQL } from './drizzle.ts'
import { StringChunk, type Table, View } from './drizzle.ts'
import type { ColumnName, Described } from './rows.ts'

export type Columns<Name extends string> = Readonly<Record<Name, StringChunk>>

/** The columns of a table for hand-written statements: `webhook_id`, or `d.webhook_id` with an alias. */
export function columnsOf<T extends Described>(table: T & (Table | View), alias?: string): Columns<ColumnName<T>>
export function columnsOf(table: Table | View, alias?: string): Record<string, StringChunk> {
  const names = Object.keys(is(table, View) ? getViewSelectedFields(table) : getTableColumns(table))
  return Object.fromEntries(
    names.map((name) => [name, new StringChunk(alias === undefined ? name : `${alias}.${name}`)]),
  )
}

/** A comma-separated list of columns, for INSERT, SELECT or RETURNING. */
export function list<Name extends string>(
  columns: Readonly<Record<Name, Column | StringChunk>>,
  ...names: Name[]
): SQL {
  const chosen = names.map((name) => columns[name])
  return sql.join(chosen, sql`, `)
}
