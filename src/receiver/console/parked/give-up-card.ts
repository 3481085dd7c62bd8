import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/console-page.ts'
import { maxAttempts } from '../../queries/give-up.ts'
import { maxGiveUps, type GiveUp } from '../../queries/give-ups.ts'
import { badge, card, code, duration, foreign, shortId, table, time, type Row } from '../parts/parts.ts'
import { linkTo } from '../parts/url.ts'

const shownRows = 50

/** The give-up clock: how long the provider goes on sending what failed here. */
export function giveUpCard(giveUps: readonly GiveUp[], now: Date, { staysRows = false } = {}): Markup {
  const waiting = giveUps.filter(({ given_up }) => !given_up)
  const [first] = waiting
  const lead =
    first === undefined
      ? html`<p class="soft">The provider sends a webhook ${maxAttempts} times in about a quarter of an hour. By its schedule it sends none of these again: the reconciler polls for the results of requests that are tracked.</p>`
      : html`<p>${waiting.length === 1 ? 'One webhook that failed here' : `${giveUps.length < maxGiveUps ? '' : 'At least '}${waiting.length} webhooks that failed here`} will be sent again, if the provider sent ${waiting.length === 1 ? 'it' : 'them'}: it makes ${maxAttempts} attempts in all. What you fix before ${time(first.last_attempt_at)} (in ${duration(Math.max(0, Date.parse(first.last_attempt_at) - now.getTime()))}) lands by itself.</p>`
  return card(
    'Give-up clock',
    html`${giveUps.length === 0 ? '' : lead}
      ${table({
        label: 'Give-up clock',
        staysRows,
        columns: [
          { head: 'Webhook id' },
          { head: 'Last attempt' },
          { head: 'Seen here', kind: 'number' },
          { head: 'Why it fails' },
          { head: 'Request' },
          { head: 'First seen', kind: 'minor' },
          { head: 'Next attempt', kind: 'minor' },
        ],
        rows: giveUps.slice(0, shownRows).map((one) => giveUpRow(one, now)),
        empty: 'No webhook is failing here: there is nothing that the provider could give up.',
      })}
      ${giveUps.length > shownRows ? html`<p class="soft">The ${shownRows} that are most urgent are shown; <a href="/api/give-ups">the API</a> has ${giveUps.length}${giveUps.length < maxGiveUps ? '' : ', and there may be more'}.</p>` : ''}`,
  )
}

function giveUpRow(
  {
    webhook_id,
    request_id,
    request_status,
    outcome,
    reason,
    attempts_seen,
    first_seen,
    next_attempt_at,
    last_attempt_at,
    given_up,
  }: GiveUp,
  now: Date,
): Row {
  return {
    cells: [
      html`<a class="mono" href="${linkTo('/deliveries', { view: 'arrivals', webhook_id })}">${foreign(webhook_id, 24)}</a>`,
      given_up
        ? html`${badge('given up', 'bad')} ${time(last_attempt_at)}`
        : html`${time(last_attempt_at)} <span class="soft">in ${duration(Math.max(0, Date.parse(last_attempt_at) - now.getTime()))}</span>`,
      html`<span title="As many of the ${maxAttempts} attempts of the provider came here. Others may have failed on the way.">${attempts_seen} of ${maxAttempts}</span>`,
      code(reason ?? outcome),
      html`${shortId('request', request_id)} ${request_status === null ? '' : badge(request_status)}`,
      time(first_seen),
      time(next_attempt_at),
    ],
  }
}
