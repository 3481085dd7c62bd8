import { html } from 'hono/html'
import { type Markup, linkTo, moment, table, time, type Cells } from '../../../platform/pages/parts.ts'
import { webhookAttempts } from '../../../wire/backoff.ts'
import { maxPageItems } from '../../domain/page-limits.ts'
import type { GiveUp } from '../../queries/give-ups.ts'
import { badge, card, code, dueTime, duration, foreign, shortId } from '../parts/parts.ts'

const [shownRows, shownShort] = [50, 5]

const schedule =
  `The times assume the schedule of the default source: ${webhookAttempts} attempts in about 15 minutes. ` +
  'Other sources have their own.'

/** The card of webhooks that failed here, each with the time of the final attempt by the default source's schedule. */
export function giveUpCard(giveUps: readonly GiveUp[], now: Date, { isShort = false } = {}): Markup {
  const shown = isShort ? shownShort : shownRows
  const waiting = giveUps.filter(({ given_up }) => !given_up)
  const [first] = waiting
  const lead =
    first === undefined
      ? html`<p class="soft">${schedule} By it, none of these will be sent again. The reconciler polls for the results of tracked requests.</p>`
      : html`<p>${waiting.length === 1 ? 'One webhook' : `${giveUps.length < maxPageItems ? '' : 'At least '}${waiting.length} webhooks`} failed here. ${schedule} Attempts after you fix the cause land without further action. The earliest final attempt is at ${time(first.last_attempt_at)} (in ${duration(Math.max(0, Date.parse(first.last_attempt_at) - now.getTime()))}).</p>
          <p class="soft">After its final attempt, a webhook without a matching secret can be verified again in the <a href="/parked">quarantine</a>, and the reconciler polls for the results of tracked requests. If a request is not tracked and its webhook is not in the quarantine, track it: otherwise its result does not arrive here.</p>`
  return card(
    'Failed webhooks',
    html`${giveUps.length === 0 ? '' : lead}
      ${table({
        label: 'Failed webhooks',
        staysRows: isShort,
        columns: [
          'Webhook id',
          'Final attempt',
          { head: 'Seen here', kind: 'number' },
          'Why it fails',
          'Request',
          { head: 'Next attempt', kind: 'minor' },
        ],
        rows: giveUps.slice(0, shown).map((giveUp) => giveUpRow(giveUp, now)),
        empty: 'No webhook is failing.',
      })}
      ${giveUps.length > shown ? html`<p class="soft">The ${shown} most urgent of ${giveUps.length}. ${isShort ? html`<a href="/parked">See all of them</a>` : html`<a href="/api/give-ups">The API</a> lists all`}.</p>` : ''}`,
  )
}

function giveUpRow(giveUp: GiveUp, now: Date): Cells {
  const { webhook_id, request_id, request_status, outcome, reason, attempts_seen } = giveUp
  const { next_attempt_at, last_attempt_at, given_up } = giveUp
  return [
    html`<a class="mono" href="${linkTo('/deliveries', { view: 'arrivals', webhook_id })}">${foreign(webhook_id, 24)}</a>`,
    given_up ? html`${badge('given up', 'bad')} ${moment(last_attempt_at)}` : moment(last_attempt_at),
    html`<span title="Attempts that arrived here, of the ${webhookAttempts} of the default source's schedule. Others may have failed on the way.">${attempts_seen} of ${webhookAttempts}</span>`,
    code(reason ?? outcome),
    html`${shortId('request', request_id)} ${request_status === null ? '' : badge(request_status)}`,
    dueTime(next_attempt_at, now, moment),
  ]
}
