import { html } from 'hono/html'
import type { Markup } from '../../runtime/console-page.ts'

// Controls but tab and line feed, marks of direction and other formats, separators, and what was no UTF-8.
const hidden = /([^\P{C}\n\t]|[\u2028\u2029\ufffd])/u

/** Text with each character that one cannot see named in place. */
export function visible(text: string): Markup {
  return html`<bdi>${text.split(hidden).map((part, at) => (at % 2 === 0 ? part : html`<span class="hidden-char">${nameOf(part)}</span>`))}</bdi>`
}

function nameOf(character: string): string {
  return `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`
}
