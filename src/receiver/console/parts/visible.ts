import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/console-page.ts'

// Controls but tab and line feed, marks of direction and other formats, separators, and what was no UTF-8.
const hidden = /([^\P{C}\n\t]|[\u2028\u2029\ufffd])/u

const allHidden = new RegExp(hidden, 'gu')

/** A name is forty times as long as what it names; after so many in one text, a dot says that there is one. */
const maxNamed = 1000

/** Text with each character that one cannot see named in place. */
export function visible(text: string): Markup {
  const parts = text.split(hidden, 2 * maxNamed)
  const begun = parts.reduce((length, part) => length + part.length, 0)
  const rest = text.slice(begun).replaceAll(allHidden, '·')
  return html`<bdi>${parts.map((part, at) => (at % 2 === 0 ? part : html`<span class="hidden-char">${nameOf(part)}</span>`))}${rest}</bdi>`
}

function nameOf(character: string): string {
  return `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`
}
