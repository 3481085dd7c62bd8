import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/console-page.ts'
import type { AttemptListing, DeliveryListing } from '../webhooks/delivery-history.ts'

/**
 * Attempts as marks with a title in words: a dot is a delivered attempt, a cross a failed one, and a ring the next one.
 */

type Mark = 'done' | 'missed' | 'coming'

const spacing = 14
const height = 16

/** The attempts of a delivery in their order, one mark each. */
export function attemptStrip(delivery: DeliveryListing): Markup {
  const marks: Mark[] = delivery.ended.map(({ ok }) => (ok ? 'done' : 'missed'))
  if (isComing(delivery)) marks.push('coming')
  if (marks.length === 0) return html`<span class="soft">none</span>`
  const words = wordsOf(delivery)
  const width = marks.length * spacing
  return html`<svg class="attempts" width="${width}" height="${height}" role="img" aria-label="${words}"><title>${words}</title>${marks.map((mark, at) => markAt(mark, `${at * spacing + spacing / 2}`, height / 2))}</svg>`
}

/**
 * The attempts on a time line, from the creation of the delivery to its last or next attempt. Empty without an ended
 * attempt, and for a single one that is the last. Hidden from screen readers, because a table with the same data
 * follows.
 */
export function attemptTimeline(delivery: DeliveryListing, attempts: readonly AttemptListing[]): Markup | '' {
  if (attempts.length === 0 || (attempts.length === 1 && !isComing(delivery))) return ''
  const begin = Date.parse(delivery.created_at)
  const coming = isComing(delivery) ? Date.parse(delivery.due_at) : undefined
  const times = attempts.map(({ started_at }) => Date.parse(started_at))
  const end = Math.max(begin + 1, ...times, coming ?? 0)
  // Percentages make the line as wide as its card and keep the marks round.
  const placeOf = (at: number) => `${Math.round(20 + (960 * Math.max(0, at - begin)) / (end - begin)) / 10}%`
  const isNext = coming !== undefined && coming === end
  return html`<figure class="attempt-timeline" aria-hidden="true">
    <svg width="100%" height="34">
      <line x1="1%" x2="99%" y1="17" y2="17"></line>
      ${attempts.map(({ ok }, at) => markAt(ok ? 'done' : 'missed', placeOf(times[at] ?? begin), 17, 1.5))}
      ${coming === undefined ? '' : markAt('coming', placeOf(coming), 17, 1.5)}
    </svg>
    <figcaption><span>${clock(begin)} made</span><span>${clock(end)} ${isNext ? 'next attempt' : 'last attempt'}</span></figcaption>
  </figure>`
}

function markAt(mark: Mark, x: string, y: number, scale = 1): Markup {
  const r = 4 * scale
  if (mark !== 'missed')
    return html`<circle class="${mark}" cx="${x}" cy="${y}" r="${mark === 'coming' ? r - 0.75 : r}"></circle>`
  return html`<svg x="${x}" y="${y}" overflow="visible"><path class="missed" d="M-${r} -${r}L${r} ${r}M-${r} ${r}L${r} -${r}"></path></svg>`
}

function isComing({ state }: DeliveryListing): boolean {
  return state === 'pending'
}

/** The answers of the attempts: `500, no answer, 200`. */
function wordsOf(delivery: DeliveryListing): string {
  const answers = delivery.ended.map(({ http_status: status }) => status ?? 'no answer')
  const ended =
    answers.length === 0
      ? 'no attempt has ended'
      : `${answers.length === 1 ? 'answer' : 'answers'}: ${answers.join(', ')}`
  return isComing(delivery) ? `${ended}; one more is to come` : ended
}

function clock(at: number): string {
  return new Date(at).toISOString().slice(11, 19)
}
