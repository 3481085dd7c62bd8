import { Column, getTableColumns, getViewSelectedFields, is, StringChunk, type Table, View } from './drizzle.ts'
import type { ColumnName, Described } from './rows.ts'

/** Names of columns as the text of a statement has them, by themselves. */
export type Columns<Name extends string> = Readonly<Record<Name, StringChunk>>

/**
 * The columns of a table for the text of statements: `${deliveries.webhook_id}`
 * is `webhook_id`, or with an alias `d.webhook_id`. So a statement that names
 * what the schema does not have, or has by another name, does not compile. Made
 * once for a file: a name costs a statement no more than text.
 */
export function columnsOf<T extends Described>(table: T & (Table | View), alias?: string): Columns<ColumnName<T>>
export function columnsOf(table: Table | View, alias?: string): Record<string, StringChunk> {
  const columns: unknown[] = Object.values(is(table, View) ? getViewSelectedFields(table) : getTableColumns(table))
  const names = columns.flatMap((column) => (is(column, Column) ? [column.name] : []))
  return Object.fromEntries(
    names.map((name) => [name, new StringChunk(alias === undefined ? name : `${alias}.${name}`)]),
  )
}

/** Several of them with commas between: what an INSERT writes, a SELECT reads, or RETURNING gives back. */
export function list<Name extends string>(columns: Columns<Name>, ...names: Name[]): StringChunk {
  return new StringChunk(names.map((name) => columns[name].value.join('')).join(', '))
}
