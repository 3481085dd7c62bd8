import { html } from 'hono/html'
import type { Markup } from './console-page.ts'

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
