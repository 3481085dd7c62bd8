import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/console-page.ts'

// Controls other than tab and line feed, direction marks and other formats, separators, and replaced invalid UTF-8.
const hidden = /([^\P{C}\n\t]|[\u2028\u2029\ufffd])/u

const allHidden = new RegExp(hidden, 'gu')

/** A name takes forty times the space of its character. After this many in one text, a dot stands for each. */
const maxNames = 1000

/** Text in which each invisible character is replaced by its name. */
export function visible(text: string): Markup {
  const parts = text.split(hidden, 2 * maxNames)
  const begun = parts.reduce((length, part) => length + part.length, 0)
  const rest = text.slice(begun).replaceAll(allHidden, '·')
  return html`<bdi>${parts.map((part, at) => (at % 2 === 0 ? part : html`<span class="hidden-char">${nameOf(part)}</span>`))}${rest}</bdi>`
}

function nameOf(character: string): string {
  return `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}`
}
