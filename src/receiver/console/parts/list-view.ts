import type { Response } from 'express'
import { html } from 'hono/html'
import type { z } from 'zod'
import {
  type Markup,
  table,
  type Table,
  type TableColumn,
  control,
  type Field,
  type Query,
  hiddenFields,
  tabs,
} from '../../../platform/pages/parts.ts'
import type { Keys } from '../../domain/keys.ts'
import { wordsOf } from '../../on-call/cause-words.ts'
import { parseFilters } from '../../queries/filters.ts'
import { tryRead } from './failures.ts'
import { pager, without, problem, linkWith } from './parts.ts'
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

/** The search of lists of webhooks. */
export const webhookIdField: Field = {
  name: 'webhook_id',
  label: 'Webhook id',
  search: true,
  placeholder: 'the whole id',
}

/** The fields of the key and its source. With the default source alone, there is no source to choose. */
export function keyFields({ all, defaultSource, sources }: Keys): Field[] {
  const key = { name: 'key_name', label: 'Key', options: all.map(({ name }) => name) }
  if (sources.size === 0) return [key]
  return [key, { name: 'source_name', label: 'Source', options: [defaultSource.name, ...sources.keys()], more: true }]
}

/** The field of the cause of a refusal or of parking. */
export function causeField(label: string, options: readonly string[], more = false): Field {
  return { name: 'reason', label, options, wordsOf: (cause) => wordsOf(cause).title, more }
}

export type FilterBar = {
  path: string
  query: Query
  fields: readonly Field[]
  /** The present time, with which relative choices become absolute times in the address. */
  now: Date
  /** The reason why the list cannot be shown: a wrong filter or a slow query. */
  problem?: string | undefined
}

const ranges = [
  ['15 min', 15],
  ['1 h', 60],
  ['6 h', 360],
  ['24 h', 1440],
  ['7 d', 10_080],
] as const

const times: readonly Field[] = [
  { name: 'since', label: 'Since (UTC)', placeholder: '15m, or 2026-01-31 03:00', more: true },
  { name: 'until', label: 'Until (UTC)', placeholder: '5m, or 2026-01-31 04:00', more: true },
]

/** The filters of a list as a form whose state is the address. Chosen filters are listed below it as links. */
export function filterBar({ path, query, fields, now, problem: wrong }: FilterBar): Markup {
  const all = [...fields, ...times]
  // The form and the links keep the tab.
  const view = { view: query['view'] }
  const [first, more] = [all.filter((field) => !field.more), all.filter((field) => field.more)]
  // Chosen filters are listed below. Only a wrong one opens the fold.
  const open = wrong !== undefined && more.some(({ name }) => query[name] !== undefined)
  return html`<form class="filters" method="get" action="${path}" role="search" data-filters>
      ${hiddenFields(view)}
      <div class="fields">${first.map((field) => control(field, query))}<button>Filter</button></div>
      <details ${open ? html`open` : ''}><summary>More filters</summary><div class="fields">${more.map((field) => control(field, query))}</div></details>
    </form>
    <div class="chosen">
      <span class="presets" role="group" aria-label="Time range">
        ${ranges.map(([label, minutes]) => html`<a href="${linkWith(path, query, { since: new Date(now.getTime() - minutes * 60_000).toISOString(), until: undefined })}">${label}</a>`)}
      </span>
      ${chips(all, path, query)}
      ${Object.keys(without(query, 'cursor', 'open', 'view')).length > 0 ? html`<a class="clear" href="${linkWith(path, view, {})}">Clear all</a>` : ''}
    </div>
    ${wrong === undefined ? '' : problem(wrong)}`
}

/** Some filters of a list, each with a label, as tabs. A tab is current if the address has just its filters of these. */
export function usualFilters(path: string, query: Query, usual: Readonly<Record<string, Query>>): Markup {
  const names = Object.values(usual).flatMap((filters) => Object.keys(filters))
  const items = Object.entries(usual).map(([label, filters]) => ({
    label,
    href: linkWith(path, query, Object.fromEntries(names.map((name) => [name, filters[name]]))),
    current: names.every((name) => query[name] === filters[name]),
  }))
  return tabs('Usual filters', items)
}

function chips(fields: readonly Field[], path: string, query: Query): readonly Markup[] {
  return fields.flatMap(({ name, label, wordsOf }) => {
    const chosen = query[name]
    if (chosen === undefined) return []
    const value = wordsOf?.(chosen) ?? chosen
    return [
      html`<a class="chip" href="${linkWith(path, query, { [name]: undefined })}" aria-label="Remove ${label}: ${value}">${label} <bdi>${value.slice(0, 40)}</bdi> <span aria-hidden="true">×</span></a>`,
    ]
  })
}
