import { html } from 'hono/html'
import type { Markup } from './console-page.ts'

/** Pieces of pages that both consoles use. All text is escaped by `html`. */

export type Action = {
  path: string
  label: string
  fields?: Record<string, string | undefined>
  tone?: 'quiet' | 'danger' | ''
  /** The name of the key that presses the button: `replay`, `tail`. */
  key?: string
}

/** A form of one button. Every action is a POST and works without script. */
export function action({ path, label, fields = {}, tone = '', key }: Action): Markup {
  return html`<form method="post" action="${path}">
    ${Object.entries(fields).map(([name, value]) => (value === undefined ? '' : html`<input type="hidden" name="${name}" value="${value}" />`))}
    <button class="${tone}" ${key === undefined ? '' : html`data-key-action="${key}"`}>${label}</button>
  </form>`
}

/** The last step before a change: its effect, one button that does it, and a way back. */
export function confirmation({
  title,
  what,
  confirm,
  back,
}: {
  title: string | Markup
  what: Markup
  confirm: Action | undefined
  back: string
}): Markup {
  return html`<section class="card confirm" aria-labelledby="confirm"><h2 id="confirm">${title}</h2>
    ${what}
    <div class="inline">${confirm === undefined ? '' : action(confirm)}<a class="button quiet" href="${back}">Back</a></div>
  </section>`
}

/** A card leaves out empty cells. */
export function isNone(cell: Markup | string | number): boolean {
  return !(cell instanceof Promise) && String(cell).trim() === '—'
}
