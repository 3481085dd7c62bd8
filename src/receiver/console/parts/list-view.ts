import type { Response } from 'express'
import { html } from 'hono/html'
import type { z } from 'zod'
import { type Markup, table, type Table, type TableColumn } from '../../../platform/pages/parts.ts'
import { parseFilters } from '../../queries/filters.ts'
import { tryRead } from './failures.ts'
import { filterBar, type FilterBar } from './filter-bar.ts'
import { pager, without } from './parts.ts'
import { sendConsolePage, type ConsoleDeps } from './shell.ts'

type List<S extends z.ZodType, R> = Omit<FilterBar, 'now' | 'problem'> & {
  title: string
  about?: string
  /** Content above the filters. */
  above?: Markup
  schema: S
  read: (wanted: z.infer<S>) => Promise<R>
  shown: (read: R) => Markup
}

/** Parameters of the address of a list that are not filters. */
export const looks = ['view', 'open', 'tail']

/** Sends a list below its filters, with links to its pages. If it cannot be read, the page shows the reason instead. */
export async function sendList<S extends z.ZodType, R extends { next_cursor: string | null }>(
  console: ConsoleDeps,
  res: Response,
  { title, about, above, schema, read, shown, ...bar }: List<S, R>,
): Promise<void> {
  const { path, query } = bar
  const attempt = await tryRead(console.logger, () => read(parseFilters(schema, without(query, ...looks))))
  const filters = filterBar({ ...bar, now: console.clock(), problem: attempt.ok ? undefined : attempt.problem })
  const list = attempt.ok && html`${shown(attempt.value)} ${pager(path, query, attempt.value.next_cursor)}`
  const body = html`${above ?? ''} ${filters} ${list}`
  sendConsolePage(console, res, { title, about, status: attempt.status, body })
}

/** A column of a list. Tables that name no columns show all but the extra ones. */
export type ListColumn<T> = TableColumn & { name?: string; extra?: true; cell: (item: T) => Markup | string }

type ListTable<T> = Omit<Table, 'columns' | 'rows'> & {
  columns: readonly ListColumn<T>[]
  items: readonly T[]
  names?: readonly string[]
}

/** A table of the items with the columns of these names, by default all but the extra ones. */
export function listTable<T extends { id: string | number }>(list: ListTable<T>): Markup {
  const { columns, items, names, ...about } = list
  const shown = columns.filter(({ name = '', extra }) => names?.includes(name) ?? !extra)
  const rows = items.map((item) => ({ id: String(item.id), cells: shown.map(({ cell }) => cell(item)) }))
  return table({ ...about, columns: shown, rows })
}
