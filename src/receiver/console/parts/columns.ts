import type { Request, Response } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import { cookieOf } from '../../../platform/pages/access.ts'
import type { Markup } from '../../../platform/pages/console-page.ts'
import { hiddenFields, table, type Table, type TableColumn } from '../../../platform/pages/parts.ts'
import { parseFilters } from '../../queries/filters.ts'
import { linkTo, queryOf, without, type Query } from './url.ts'

/** A column that can be chosen. The first column of a list links to the page of a row and is always shown. */
export type ListColumn<T> = TableColumn & { name: string; usual?: true; cell: (item: T) => Markup | string }

/** A list whose columns can be chosen. `name` is part of the name of its cookie. */
export type ColumnList = {
  name: string
  path: string
  columns: readonly Pick<ListColumn<never>, 'name' | 'head' | 'usual'>[]
}

/**
 * The names of the columns to show: those in the address, else the last choice of this browser, else the usual ones.
 * Throws InvalidFilterError for an unknown column in the address.
 */
export function shownColumns(list: ColumnList, req: Request): string[] {
  const { columns } = parseFilters(schemaOf(list), { columns: queryOf(req)['columns'] })
  const wanted =
    columns ?? schemaOf(list).safeParse({ columns: cookieOf(req, cookie(list))?.replaceAll('.', ',') }).data?.columns
  const names = wanted?.split(',')
  return list.columns.flatMap(({ name, usual }, place) =>
    place === 0 || (names?.includes(name) ?? usual === true) ? [name] : [],
  )
}

function schemaOf({ columns }: ColumnList) {
  const names = columns.map(({ name }) => name)
  const isKnown = (text: string) => text.split(',').every((name) => names.includes(name))
  return z.object({
    columns: z
      .string()
      .refine(isKnown, `must be some of ${names.join(', ')}`)
      .optional(),
  })
}

const cookie = ({ name }: ColumnList) => `columns_${name}`

/** Keeps the chosen columns for this browser, then redirects to the list. */
export function rememberColumns(list: ColumnList, req: Request, res: Response): boolean {
  const { remember, ...query } = queryOf(req)
  if (remember !== 'columns') return false
  const { columns } = schemaOf(list).safeParse(query).data ?? {}
  const options = { httpOnly: true, sameSite: 'lax', secure: req.secure, path: list.path } as const
  if (columns === undefined) res.clearCookie(cookie(list), options)
  else res.cookie(cookie(list), columns.replaceAll(',', '.'), { ...options, maxAge: 365 * 86_400_000 })
  res.redirect(303, linkTo(list.path, query))
  return true
}

/** The folded form that chooses columns. It works without script. */
export function columnChooser(list: ColumnList, query: Query, shown: readonly string[]): Markup {
  const rest = without(query, 'columns', 'cursor', 'open')
  return html`<details class="chooser"><summary>Columns</summary>
    <form method="get" action="${list.path}">
      ${hiddenFields({ ...rest, remember: 'columns' })}
      <fieldset><legend>Columns</legend>${list.columns.map(
        ({ name, head }, place) =>
          html`<label><input type="checkbox" name="columns" value="${name}" ${shown.includes(name) ? html`checked` : ''} ${place === 0 ? html`disabled` : ''} /> ${head}</label>`,
      )}</fieldset>
      <button>Show these</button> <a href="${linkTo(list.path, { ...rest, remember: 'columns' })}">The usual ones</a>
    </form></details>`
}

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
