import { getTableColumns, getViewSelectedFields, is, StringChunk, type Table, View } from './drizzle.ts'
import type { ColumnName, Described } from './rows.ts'

/** Names of columns for the text of a statement. */
export type Columns<Name extends string> = Readonly<Record<Name, StringChunk>>

/**
 * The columns of a table for statements that are written by hand: `${deliveries.webhook_id}` is `webhook_id`, or
 * `d.webhook_id` with an alias. A statement that names a column the schema does not have does not compile.
 */
export function columnsOf<T extends Described>(table: T & (Table | View), alias?: string): Columns<ColumnName<T>>
export function columnsOf(table: Table | View, alias?: string): Record<string, StringChunk> {
  const names = Object.keys(is(table, View) ? getViewSelectedFields(table) : getTableColumns(table))
  return Object.fromEntries(
    names.map((name) => [name, new StringChunk(alias === undefined ? name : `${alias}.${name}`)]),
  )
}

/** Several of them with commas between: what an INSERT writes, a SELECT reads, or RETURNING returns. */
export function list<Name extends string>(columns: Columns<Name>, ...names: Name[]): StringChunk {
  return new StringChunk(names.map((name) => columns[name].value.join('')).join(', '))
}
