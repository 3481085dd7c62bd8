import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/console-page.ts'
import { facts, type Fact, table, time } from '../../../platform/pages/parts.ts'
import type { RequestDetail } from '../../queries/request-detail.ts'
import { badge, card, dueTime, foreign, number } from '../parts/parts.ts'
import { delayOf, nextPoll, pollSummaryOf, type When } from './request-words.ts'

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
