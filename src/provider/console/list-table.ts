import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/console-page.ts'
import { isNone } from '../../platform/pages/parts.ts'

export type ListTable = {
  label: string
  columns: readonly { head: string; kind?: 'number' | 'wide' }[]
  rows: readonly (readonly (Markup | string | number)[])[]
  empty: string
}

/** A list. On a phone each row is a card, with its cells below the names of their columns. */
export function listTable({ label, columns, rows, empty }: ListTable): Markup {
  if (rows.length === 0) return html`<p class="empty">${empty}</p>`
  return html`<div class="scroll" tabindex="0" role="region" aria-label="${label}">
    <table class="cards">
      <thead>
        <tr>
          ${columns.map(({ head, kind = '' }) => html`<th scope="col" class="${kind}">${head}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${rows.map((cells) => html`<tr>${cells.map((cell, at) => html`<td class="${columns[at]?.kind ?? ''} ${isNone(cell) ? 'none' : ''}" data-head="${columns[at]?.head ?? ''}">${cell}</td>`)}</tr>`)}
      </tbody>
    </table>
  </div>`
}
