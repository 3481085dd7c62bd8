import type { Markup } from '../../../platform/pages/console-page.ts'
import { table, type Table, type TableColumn } from '../../../platform/pages/parts.ts'

/** A column of a list. Tables that name no columns show the usual ones. */
export type ListColumn<T> = TableColumn & { name: string; usual?: true; cell: (item: T) => Markup | string }

export type ListTable<T> = Omit<Table, 'columns' | 'rows'> & {
  columns: readonly ListColumn<T>[]
  items: readonly T[]
  names?: readonly string[]
}

/** A table of the items with the columns of these names, by default the usual ones. */
export function listTable<T extends { id: string | number }>(list: ListTable<T>): Markup {
  const { columns, items, names, ...about } = list
  const shown = columns.filter(({ name, usual }) => names?.includes(name) ?? usual)
  const rows = items.map((item) => ({ id: String(item.id), cells: shown.map(({ cell }) => cell(item)) }))
  return table({ ...about, columns: shown, rows })
}
