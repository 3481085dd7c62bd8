import type { Request } from 'express'
import { html } from 'hono/html'
import { type Markup, linkTo, type Query, badgeOf, pageLinks, time, type Tone } from '../../../platform/pages/parts.ts'
import { defaultSourceName } from '../../domain/source.ts'
import { causeWords } from '../../on-call/cause-words.ts'
import { ago } from '../../queries/filters.ts'

/** Pieces that the pages of the receiver's console share. All text is escaped by `html`. */

/** The first 8 characters of an id as a link to its page. The title and the copy button have the whole id. */
export function shortId(kind: 'request' | 'delivery', id: string | null | undefined): Markup {
  if (id === null || id === undefined) return html`<span class="soft">—</span>`
  const path = kind === 'request' ? '/requests/' : '/deliveries/'
  return html`<a class="mono" href="${path}${id}" title="${id}" data-copy="${id}">${id.slice(0, 8)}</a>`
}

/** Foreign text within our own, cut for display. Invisible characters are named, so none reverses or hides text. */
export function foreign(text: string | null | undefined, maxCharacters = 80): Markup {
  if (text === null || text === undefined || text === '') return html`<span class="soft">—</span>`
  if (text.length <= maxCharacters) return visible(text)
  // The cut must not leave half of a surrogate pair.
  return html`<span title="${text.slice(0, 1000)}">${visible(`${text.slice(0, maxCharacters).replace(/\p{Cs}$/u, '')}…`)}</span>`
}

/** A value of JSON as plain text. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}

const tones = {
  good: 'accepted processed landed COMPLETED OK result',
  warn: 'pending parked retry contradiction overdue rate_limited',
  bad: 'refused unavailable key_mismatch source_mismatch landing_failed unauthorized unreachable invalid FAILED ERROR',
}

function toneOf(word: string): Tone {
  return (['good', 'warn', 'bad'] as const).find((tone) => tones[tone].split(' ').includes(word)) ?? ''
}

/** An outcome, status or state. Its tone follows from the word, its meaning is in the title. */
export function badge(word: string, tone: Tone = toneOf(word)): Markup {
  return badgeOf(word, tone, meaningOf(word))
}

/** The time of a next step, or "due now" once it has come. */
export function dueTime(at: string | null, now: Date, shown: typeof time = time): Markup {
  if (at === null || Date.parse(at) > now.getTime()) return shown(at)
  return html`<span title="${at}">due now</span>`
}

/** A line that names another source. A row of the default source has none. */
export function sourceLine(name: string | null): Markup | '' {
  if (name === null || name === defaultSourceName) return ''
  return html`<div class="soft" title="The source in SOURCES_FILE">${foreign(name, 18)}</div>`
}

/** A reason in words. The title has its meaning and the code that filters take. */
export function code(word: string): Markup {
  const meaning = meaningOf(word)
  return html`<span title="${word}${meaning === undefined ? '' : `: ${meaning}`}">${causeWords.get(word)?.title ?? inWords(word)}</span>`
}

function inWords(word: string): string {
  return word.slice(0, 1).toUpperCase() + word.slice(1).replaceAll('_', ' ')
}

/** A number with thin spaces between the thousands; a dash where it is unknown. */
export function number(
  value: number | null | undefined,
  { decimals = 0, unit = '' }: { decimals?: number; unit?: string } = {},
): string {
  if (value === null || value === undefined) return '—'
  const text = value
    .toLocaleString('en-US', { minimumFractionDigits: decimals, maximumFractionDigits: decimals })
    .replaceAll(',', '\u202f')
  return unit === '' ? text : `${text}\u00a0${unit}`
}

/** `1 delivery`, `1 234 deliveries`. */
export function counted(n: number, one: string, many: string): string {
  return `${number(n)} ${n === 1 ? one : many}`
}

/** Credits, with decimals only if there are any. */
export function credits(value: number | null): string {
  return number(value, { decimals: value === null || Number.isInteger(value) ? 0 : 2 })
}

export function size(bytes: number | null | undefined): string {
  if (bytes === null || bytes === undefined) return '—'
  if (bytes < 1024) return `${bytes}\u00a0B`
  return bytes < 1024 * 1024 ? `${(bytes / 1024).toFixed(1)}\u00a0KiB` : `${(bytes / 1024 / 1024).toFixed(1)}\u00a0MiB`
}

/** How long something takes or took: `850 ms`, `12 s`, `3 min`, `5 h`, `2 d`. */
export function duration(milliseconds: number): string {
  const seconds = Math.abs(milliseconds) / 1000
  if (seconds < 1) return `${Math.round(milliseconds)}\u00a0ms`
  const [divisor, unit] =
    seconds < 90 ? [1, 's'] : seconds < 5400 ? [60, 'min'] : seconds < 129_600 ? [3600, 'h'] : [86_400, 'd']
  return `${Math.round(milliseconds / 1000 / divisor)}\u00a0${unit}`
}

/** `for 3 min` beside the time of a beginning; empty while that time reads "just now" (assets/times.js). */
export function lasting(milliseconds: number): string {
  return milliseconds < 5000 ? '' : `for ${duration(milliseconds)}`
}

/** A part of a page under its own heading. */
export function card(title: string, body: Markup, { id }: { id?: string } = {}): Markup {
  const name = id ?? title.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-')
  return html`<section class="card" aria-labelledby="${name}"><h2 id="${name}">${title}</h2>${body}</section>`
}

/** Links to older rows by the cursor, and back to the newest. */
export function pager(path: string, query: Query, nextCursor: string | null): Markup {
  return pageLinks({
    newest: query['cursor'] === undefined ? undefined : linkWith(path, query, {}),
    older: nextCursor === null ? undefined : linkTo(path, { ...query, open: undefined, cursor: nextCursor }),
  })
}

/** An error in words, with what to do. */
export function problem(text: string | Markup): Markup {
  return html`<p class="problem" role="alert">${text}</p>`
}

export function notice(text: string | Markup): Markup {
  return html`<p class="notice" role="status">${text}</p>`
}

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

/** The meaning of each code that has no entry among the causes. */
const meanings: Record<string, string> = {
  id_reused: 'an earlier webhook with the same id had another body',
  contradiction: 'it contradicts the stored result',
  foreign_host: 'its media are on a host that is not in MEDIA_HOSTS',
  landed: 'its result was written',
  no_effect: 'it changed nothing: its request had already ended in this state',
  retry: 'processing failed and is tried again',
  accepted: 'it is stored and not processed yet',
  duplicate: 'the same webhook was stored before',
  parked: 'it is authentic but not usable; fix the cause, then replay it',
  refused: 'it was not accepted; see the cause',
  unavailable: 'it could not be stored; the sender tries again',
  pending: 'it waits to be processed',
  processed: 'it was processed',
}

/** The meaning of an outcome, a state, a flag or a cause. */
export function meaningOf(code: string): string | undefined {
  return Object.hasOwn(meanings, code) ? meanings[code] : causeWords.get(code)?.means
}

/** A link to the first page of the same list with other filters and no open row. */
export function linkWith(path: string, query: Query, changes: Query): string {
  return linkTo(path, { ...query, cursor: undefined, open: undefined, ...changes })
}

/** A time without an offset like `2026-01-31 03:00` is in UTC, as the form says. */
const withoutOffset = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d(?:\.\d+)?)?)?$/

/** The parameters of a page for the filters' parser. Empty ones are left out, and the last of a repeated one counts. */
export function queryOf(req: Request): Record<string, string> {
  const given = Object.entries(req.query).flatMap(([name, value]) => {
    const last: unknown = Array.isArray(value) ? value.at(-1) : value
    const text = typeof last === 'string' ? last.trim() : ''
    return text === '' ? [] : [[name, name === 'since' || name === 'until' ? inUtc(text) : text] as const]
  })
  return Object.fromEntries(given)
}

/** The parameters without those with the given names. */
export function without(query: Query, ...names: string[]): Record<string, string> {
  return Object.fromEntries(
    Object.entries(query).flatMap(([name, value]) =>
      value === undefined || names.includes(name) ? [] : [[name, value]],
    ),
  )
}

function inUtc(text: string): string {
  const [, day, minutes = '00:00', seconds = ':00'] = withoutOffset.exec(text) ?? []
  return day === undefined ? ago(text) : `${day}T${minutes}${seconds}Z`
}
