import { html } from 'hono/html'

/** Pieces of pages that both consoles use. All text is escaped by `html`. */

/** Escaped markup, made by `html` tagged templates. */
export type Markup = ReturnType<typeof html>

export type Action = {
  path: string
  label: string
  fields?: Record<string, string | undefined>
  tone?: 'quiet' | 'danger' | ''
  /** The name of the key that presses the button: `replay`, `tail`. */
  key?: string
}

/** The fields of a form that nobody fills in. Undefined ones are left out. */
export function hiddenFields(fields: Readonly<Record<string, string | undefined>>): readonly (Markup | '')[] {
  return Object.entries(fields).map(([name, value]) =>
    value === undefined ? '' : html`<input type="hidden" name="${name}" value="${value}" />`,
  )
}

/** A form of one button. Every action is a POST and works without script. */
export function action({ path, label, fields = {}, tone = '', key }: Action): Markup {
  return html`<form method="post" action="${path}">
    ${hiddenFields(fields)}
    <button class="${tone}" ${key === undefined ? '' : html`data-key-action="${key}"`}>${label}</button>
  </form>`
}

type Confirmation = { title: string; what: Markup; confirm: Action | undefined; back: string }

/** The last step before a change: its effect, one button that does it, and a way back. */
export function confirmation({ title, what, confirm, back }: Confirmation): Markup {
  return html`<section class="card confirm" aria-labelledby="confirm"><h2 id="confirm">${title}</h2>
    ${what}
    <div class="inline">${confirm === undefined ? '' : action(confirm)}<a class="button quiet" href="${back}">Back</a></div>
  </section>`
}

/** True for an empty cell, which a card leaves out. */
function isNone(cell: Markup | string | number): boolean {
  return !(cell instanceof Promise) && /^\s*(<span class="soft">)?—(<\/span>)?\s*$/.test(String(cell))
}

export type Tone = 'good' | 'warn' | 'bad' | ''

/** An outcome, status or state, with its meaning as the title. */
export function badgeOf(word: string, tone: Tone = '', meaning?: string): Markup {
  return html`<span class="badge ${tone}" ${meaning === undefined ? '' : html`title="${meaning}"`}>${word}</span>`
}

/** Links to older rows and back to the newest, each undefined where there is none. New rows never shift a page. */
export function pageLinks({ newest, older }: { newest: string | undefined; older: string | undefined }): Markup {
  if (newest === undefined && older === undefined) return html``
  return html`<nav class="pager" aria-label="More rows">
    ${newest === undefined ? '' : html`<a href="${newest}" rel="first">← Newest</a>`}
    ${older === undefined ? html`<span class="soft">No older rows.</span>` : html`<a href="${older}" rel="next">Older →</a>`}
  </nav>`
}

type Shown = 'usual' | 'precise' | 'clock' | 'seconds'

/**
 * A moment in UTC, also as Postgres writes it: `precise` with milliseconds, `clock` and `seconds` without the date. The
 * title is complete.
 */
export function time(at: string | Date | null | undefined, shown: Shown = 'usual', said: Markup | '' = ''): Markup {
  if (at === null || at === undefined) return html`<span class="soft">—</span>`
  const iso = new Date(at).toISOString()
  const clock = iso.slice(11, shown === 'usual' || shown === 'seconds' ? 19 : 23)
  return html`<time datetime="${iso}" title="${iso}" ${said}>${shown === 'clock' || shown === 'seconds' ? '' : html`<span class="soft"><span class="year">${iso.slice(0, 5)}</span>${iso.slice(5, 10)}</span> `}${clock}</time>`
}

/** A moment in a list. assets/times.js shows how long ago it was, unless exact times are switched on. */
export function moment(at: string | Date | null | undefined, shown: Shown = 'usual'): Markup {
  return time(at, shown, html`data-ago`)
}

export type TableColumn = {
  head: string | Markup
  /** `number` is right aligned; `minor` is left out on a phone; `wide` breaks lines. */
  kind?: 'number' | 'minor' | 'minor number' | 'select' | 'wide'
}

/** Columns of numbers, by their heads. */
export const numbers = (...heads: string[]) => heads.map((head): TableColumn => ({ head, kind: 'number' }))

export type Cells = readonly (Markup | string | number)[]

/** The id names the row for the keyboard and for `open` in the address. */
export type Row = { id: string; cells: Cells }

export type Table = {
  label: string
  /** A text is the head of an ordinary column. */
  columns: readonly (TableColumn | string)[]
  rows: readonly (Row | Cells)[]
  empty?: string | Markup
  rowsId?: string
  /** Keeps rows on a phone, instead of cards, to save height. */
  staysRows?: boolean
}

/** A table for the keyboard: Enter opens the first link of a row. Beyond three columns, rows are cards on a phone. */
export function table({ label, columns: given, rows, empty = '', rowsId, staysRows = false }: Table): Markup {
  if (rows.length === 0 && rowsId === undefined) return emptyState(empty)
  const columns = given.map((column): TableColumn => (typeof column === 'string' ? { head: column } : column))
  return html`<div class="scroll" tabindex="0" role="group" aria-label="${label}">
    <table class="${columns.length > 3 && !staysRows ? 'cards' : ''}">
      <thead><tr>${columns.map(({ head, kind = '' }) => html`<th scope="col" class="${kind}">${head}</th>`)}</tr></thead>
      <tbody data-rows ${rowsId === undefined ? '' : html`id="${rowsId}"`}>
        ${rows.map((row) => {
          const { id, cells } = 'cells' in row ? row : { id: undefined, cells: row }
          return html`<tr ${id === undefined ? '' : html`id="row-${id}" data-row="${id}"`}>${cells.map((cell, at) => html`<td class="${columns[at]?.kind ?? ''} ${isNone(cell) ? 'none' : ''}" ${headOf(columns[at])}>${cell}</td>`)}</tr>`
        })}
      </tbody>
    </table>
  </div>
  ${rows.length === 0 ? emptyState(empty) : ''}`
}

/** The label of a cell where its row is a card. */
function headOf(column: TableColumn | undefined): Markup | '' {
  return typeof column?.head === 'string' && column.head !== '' ? html`data-head="${column.head}"` : ''
}

/** Says why a list is empty, and what to do. */
export function emptyState(text: string | Markup): Markup {
  return html`<div class="empty">${text}</div>`
}

export type Fact = readonly [name: Markup | string, value: Markup | string | number]

/** Names and values, one per line. False leaves out a line. */
export function facts(entries: readonly (Fact | false)[]): Markup {
  const known = entries.filter((entry) => entry !== false)
  return html`<dl class="facts">${known.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`
}

export type Tab = { label: string; href: string; current: boolean }

export function tabs(label: string, items: readonly Tab[]): Markup {
  return html`<nav class="tabs" aria-label="${label}">
    ${items.map(({ label, href, current }) => html`<a href="${href}" ${current ? html`aria-current="page"` : ''}>${label}</a>`)}
  </nav>`
}

/** The parameters of a page's address, by name. */
export type Query = Readonly<Record<string, string | undefined>>

/** A link to `path` with these parameters; empty ones are left out. */
export function linkTo(path: string, query: Query = {}): string {
  const params = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== '') params.set(name, value)
  const text = params.toString()
  return text === '' ? path : `${path}?${text}`
}

/** A field of the filters of a list. Its value stands in the address. */
export type Field = {
  name: string
  label: string
  /** The choices of a select; without them the field takes any text. */
  options?: readonly string[]
  /** The words for a choice, where the code alone is not understood. */
  wordsOf?: (choice: string) => string
  placeholder?: string
  /** True for a search, which is wide and which the key `/` focuses. */
  search?: boolean
  /** True for a field that is folded below "More filters". */
  more?: boolean
}

export function control({ name, label, options, wordsOf, placeholder = '', search }: Field, query: Query): Markup {
  const value = query[name] ?? ''
  if (options === undefined) {
    return html`<label class="${search ? 'wide' : ''}"><span>${label}</span>
      <input type="${search ? 'search' : 'text'}" name="${name}" value="${value}" placeholder="${placeholder}" autocomplete="off" spellcheck="false"
        ${search ? html`data-search` : ''} /></label>`
  }
  // An unknown value stays visible, because the error message mentions it.
  const choices = value === '' || options.includes(value) ? options : [value, ...options]
  return html`<label><span>${label}</span>
    <select name="${name}"><option value="">any</option>${choices.map((choice) => html`<option value="${choice}" ${choice === value ? html`selected` : ''}>${wordsOf?.(choice) ?? choice}</option>`)}</select></label>`
}
