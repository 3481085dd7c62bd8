import { html } from 'hono/html'
import { type Markup, facts, type Fact, table, time, type Cells } from '../../../platform/pages/parts.ts'
import type { RequestDetail } from '../../queries/request-detail.ts'
import { badge, card, dueTime, foreign, number, shortId } from '../parts/parts.ts'
import type { When } from '../parts/shell.ts'
import { delayOf, nextPoll, pollSummaryOf } from './request-words.ts'

/** The state and times here beside those at the provider. */
export function bothSidesCard(request: RequestDetail, when: When): Markup {
  const { status, tracked_at, created_at, landed_at, completed_at, confirmed_at } = request
  const summary = pollSummaryOf(request)
  return card(
    'Here and at the provider',
    html`${table({
      label: 'State and times on both sides',
      columns: ['', 'Here', 'Provider'],
      rows: [
        ['State', badge(status), badge(summary.word, summary.tone)],
        ['Began', atWord(tracked_at, 'tracked'), atWord(created_at, 'created')],
        ['Ended', atWord(landed_at, 'landed'), atWord(completed_at, 'ended')],
      ],
    })}
    ${confirmed_at === null ? html`<p class="soft">Last poll: ${foreign(summary.text, 500)}.</p>` : ''}
    ${facts([
      landed_at !== null && ['Delay', delayOf(request) ?? 'unknown: the provider gave no time of the end'],
      landed_at !== null && [
        'Confirmed',
        confirmed_at === null ? html`<span class="soft">not yet by the provider's result</span>` : time(confirmed_at),
      ],
      ...pollFacts(request, when),
    ])}`,
  )
}

/** A time with the word for what happened: a request lands here later than it ends at the provider. */
function atWord(at: string | null, word: string): Markup {
  return html`${time(at)}${at === null ? '' : html`<div class="soft">${word}</div>`}`
}

function pollFacts(request: RequestDetail, when: When): Fact[] {
  const { polls, polled_at } = request
  const next = nextPoll(request, when)
  // One poll may call with several keys, each a row of the log. The column stays when the log is pruned.
  const count = Math.max(
    polls,
    request.timeline.filter((entry) => entry.kind === 'poll' && entry.poll.key_name !== null).length,
  )
  return [
    [
      'Polled',
      polled_at === null
        ? html`<span class="soft">never</span>`
        : count === 0
          ? html`not yet, last tried ${time(polled_at)}`
          : html`${number(count)} ${count === 1 ? 'time' : 'times'}, last ${time(polled_at)}`,
    ],
    ['Next poll', 'never' in next ? html`<span class="soft">${next.never}</span>` : dueTime(next.at, when.now)],
  ]
}

const ends = { OK: 'COMPLETED', ERROR: 'FAILED', CANCELED: 'CANCELED' } as const

/** The ends that each side reported of a request, and the end that stands. Empty without a contradiction. */
export function contradictionCard(request: RequestDetail): Markup | '' {
  const { contradiction, status, confirmed_at, poll_outcome } = request
  if (!contradiction) return ''
  const why =
    confirmed_at === null
      ? html`The first end stands until the provider's own result decides. ${poll_outcome === 'not_found' ? 'No key that was tried knows this request at the provider, so it may stay undecided.' : 'Use “Ask the provider now” to decide at once.'}`
      : html`The provider's own result decides, and it was read at ${time(confirmed_at)}.`
  return card(
    'Contradiction',
    html`<p><b>${status} stands.</b> ${why}</p>
      ${table({
        label: 'Reported ends',
        columns: ['Who', 'Said', 'When', ''],
        rows: statements(request),
        empty: 'The contradicting deliveries were pruned after RETENTION_DAYS.',
      })}`,
  )
}

/** The mark of a contradiction. One that is decided needs no attention. */
export function contradictionBadge({ confirmed_at }: Pick<RequestDetail, 'confirmed_at'>): Markup {
  return badge('contradiction', confirmed_at === null ? 'warn' : '')
}

/** One row for each webhook that names an end, oldest first, then one for the provider's own result. */
function statements({ timeline, status, confirmed_at }: RequestDetail): Cells[] {
  const tone = confirmed_at === null ? 'warn' : ''
  const webhooks = timeline.flatMap((entry) =>
    entry.kind === 'delivery' && entry.delivery.status !== null ? [entry.delivery] : [],
  )
  const stands = (end: string) => (end === status ? badge('stands', 'good') : badge('not applied', tone))
  const said = webhooks.map(({ id, status: word, received_at, arrivals }): Cells => {
    const end = word === null ? '' : ends[word]
    const often = arrivals > 1 ? html` <span class="soft">×${number(arrivals)}</span>` : ''
    return [
      html`Webhook ${shortId('delivery', id)}${often}`,
      html`${badge(end)}${word === end ? '' : html` <span class="soft">(status ${word})</span>`}`,
      time(received_at),
      stands(end),
    ]
  })
  if (confirmed_at === null) return said
  return [...said, ["The provider's own result", badge(status), time(confirmed_at), stands(status)]]
}
