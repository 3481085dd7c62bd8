import { html } from 'hono/html'
import { type Markup, linkTo, moment } from '../../../platform/pages/parts.ts'
import type { ArrivalEntry } from '../../queries/arrivals.ts'
import type { DeliveryEntry } from '../../queries/deliveries.ts'
import type { ListColumn } from '../parts/list-view.ts'
import { badge, code, foreign, number, shortId, sourceLine } from '../parts/parts.ts'

// The rows of deliveries and arrivals, for every table that shows them.

const none = html`<span class="soft">—</span>`
const answeredIn = ({ ack_ms }: { ack_ms: number | null }) => number(ack_ms, { decimals: 1, unit: 'ms' })

export const deliveryColumns: readonly ListColumn<DeliveryEntry>[] = [
  { name: 'received', head: 'Received', cell: receivedDelivery },
  { name: 'says', head: 'Status', extra: true, cell: ({ status }) => status ?? none },
  { name: 'outcome', head: 'Outcome', cell: ({ outcome }) => badge(outcome) },
  { name: 'cause', head: 'Cause', cell: causeOf },
  { name: 'webhook_id', head: 'Webhook id', cell: webhookOf },
  { name: 'request', head: 'Request', cell: ({ request_id }) => shortId('request', request_id) },
  { name: 'key', head: 'Key', kind: 'minor', cell: ({ key_name }) => foreign(key_name, 20) },
]

function receivedDelivery({ id, received_at, source_name }: DeliveryEntry): Markup {
  return html`<a href="/deliveries/${id}">${moment(received_at)}</a>${sourceLine(source_name)}`
}

function webhookOf({ webhook_id }: DeliveryEntry): Markup {
  return html`<span class="mono" data-copy="${webhook_id}">${foreign(webhook_id, 18)}</span>`
}

/** The reason and the flags. A flag that repeats the reason or the outcome is left out. */
function causeOf({ reason, flags, outcome }: DeliveryEntry): Markup {
  const others = flags.filter((flag) => flag !== reason && flag !== outcome)
  if (reason === null && others.length === 0) return none
  return html`${reason === null ? '' : code(reason)} ${others.map((flag) => html`${badge(flag, 'warn')} `)}`
}

export const arrivalColumns: readonly ListColumn<ArrivalEntry>[] = [
  { name: 'received', head: 'Received', cell: receivedArrival },
  { name: 'outcome', head: 'Outcome', cell: outcomeOfArrival },
  { name: 'cause', head: 'Cause', cell: causeOfArrival },
  { name: 'webhook_id', head: 'Webhook id', cell: arrivalsOfWebhook },
  { name: 'request', head: 'Request', cell: ({ request_id }) => shortId('request', request_id) },
  { name: 'key', head: 'Key', kind: 'minor', extra: true, cell: ({ key_name }) => foreign(key_name, 20) },
  { name: 'from', head: 'From', kind: 'minor', cell: ({ remote }) => foreign(remote, 40) },
  { name: 'answered_in', head: 'Answered in', kind: 'minor number', extra: true, cell: answeredIn },
]

function receivedArrival({ outcome, delivery_id, arrived_at, folded, source_name }: ArrivalEntry): Markup {
  const stored = outcome === 'accepted' || outcome === 'duplicate' || outcome === 'parked'
  const at = moment(arrived_at, 'precise')
  return html`${stored ? html`<a href="/deliveries/${delivery_id}">${at}</a>` : at}${folded > 0 ? html` <span class="soft" title="This row also counts similar arrivals: the log is bounded under a flood.">+${number(folded)}</span>` : ''}${sourceLine(source_name)}`
}

function outcomeOfArrival({ outcome, parked_reason }: ArrivalEntry): Markup {
  return html`${badge(outcome)}${parked_reason === null || outcome === 'parked' ? '' : html`<br />${badge('parked')}`}`
}

function causeOfArrival({ reason, parked_reason }: ArrivalEntry): Markup {
  const cause = reason ?? parked_reason
  return cause === null ? none : html`<span class="words">${code(cause)}</span>`
}

/** Links to all arrivals that state the webhook id, since refused ones are not trusted. */
function arrivalsOfWebhook({ webhook_id }: ArrivalEntry): Markup {
  if (webhook_id === null) return none
  return html`<a class="mono" href="${linkTo('/deliveries', { view: 'arrivals', webhook_id })}" data-copy="${webhook_id}">${foreign(webhook_id, 18)}</a>`
}
