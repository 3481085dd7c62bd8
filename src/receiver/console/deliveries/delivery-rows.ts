import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/console-page.ts'
import { moment, type Row } from '../../../platform/pages/parts.ts'
import type { ArrivalEntry } from '../../queries/arrivals.ts'
import type { DeliveryEntry } from '../../queries/deliveries.ts'
import { listTable, type ListColumn, type ListTable } from '../parts/columns.ts'
import { badge, code, foreign, number, shortId, sourceLine } from '../parts/parts.ts'
import { linkTo } from '../parts/url.ts'

// The rows of deliveries and arrivals, for every table that shows them.

type About = Omit<ListTable, 'label' | 'columns' | 'rows'>

export function deliveriesTable(label: string, deliveries: readonly DeliveryEntry[], about: About = {}): Markup {
  return listTable({ label, columns: deliveryColumns, rows: deliveries.map(deliveryRow), ...about })
}

export function arrivalsTable(label: string, arrivals: readonly ArrivalEntry[], about: About = {}): Markup {
  return listTable({ label, columns: arrivalColumns, rows: arrivals.map(arrivalRow), ...about })
}

export const deliveryColumns: readonly ListColumn[] = [
  { name: 'received', head: 'Received', usual: true },
  { name: 'says', head: 'Status' },
  { name: 'outcome', head: 'Outcome', usual: true },
  { name: 'cause', head: 'Cause', usual: true },
  { name: 'webhook_id', head: 'Webhook id', usual: true },
  { name: 'request', head: 'Request', usual: true },
  { name: 'model', head: 'Model', kind: 'minor' },
  { name: 'key', head: 'Key', kind: 'minor', usual: true },
  { name: 'skew', head: 'Skew', kind: 'minor number' },
  { name: 'arrivals', head: 'Arrivals', kind: 'number' },
  { name: 'state', head: 'State' },
  { name: 'answered_in', head: 'Answered in', kind: 'minor number' },
]

export function deliveryRow(delivery: DeliveryEntry): Row {
  const { id, webhook_id, request_id, received_at, status, outcome, model, key_name, source_name } = delivery
  const { skew_seconds, arrivals, state, ack_ms } = delivery
  return {
    id,
    cells: [
      html`<a href="/deliveries/${id}">${moment(received_at)}</a>${sourceLine(source_name)}`,
      status ?? html`<span class="soft">—</span>`,
      badge(outcome),
      causeOf(delivery),
      html`<span class="mono" data-copy="${webhook_id}">${foreign(webhook_id, 18)}</span>`,
      shortId('request', request_id),
      foreign(model, 28),
      foreign(key_name, 20),
      number(skew_seconds, { unit: 's' }),
      number(arrivals),
      badge(state),
      number(ack_ms, { decimals: 1, unit: 'ms' }),
    ],
  }
}

/** The reason and the flags. A flag that repeats the reason or the outcome is left out. */
function causeOf({ reason, flags, outcome }: DeliveryEntry): Markup {
  const others = flags.filter((flag) => flag !== reason && flag !== outcome)
  if (reason === null && others.length === 0) return html`<span class="soft">—</span>`
  return html`${reason === null ? '' : code(reason)} ${others.map((flag) => html`${badge(flag, 'warn')} `)}`
}

export const arrivalColumns: readonly ListColumn[] = [
  { name: 'received', head: 'Received', usual: true },
  { name: 'outcome', head: 'Outcome', usual: true },
  { name: 'cause', head: 'Cause', usual: true },
  { name: 'webhook_id', head: 'Webhook id', usual: true },
  { name: 'request', head: 'Request', usual: true },
  { name: 'key', head: 'Key', kind: 'minor' },
  { name: 'skew', head: 'Skew', kind: 'minor number' },
  { name: 'status', head: 'Status', kind: 'number' },
  { name: 'from', head: 'From', kind: 'minor', usual: true },
  { name: 'answered_in', head: 'Answered in', kind: 'minor number' },
]

/** A row of the arrivals. Its webhook id links to all arrivals that claim it, since refused ones are not trusted. */
export function arrivalRow(arrival: ArrivalEntry): Row {
  const { id, arrived_at, outcome, reason, status, webhook_id, delivery_id, request_id, key_name } = arrival
  const { source_name, remote, skew_seconds, ack_ms, folded, parked_reason } = arrival
  const stored = outcome === 'accepted' || outcome === 'duplicate' || outcome === 'parked'
  const cause = reason ?? parked_reason
  return {
    id: String(id),
    cells: [
      html`${stored ? html`<a href="/deliveries/${delivery_id}">${moment(arrived_at, 'precise')}</a>` : moment(arrived_at, 'precise')}${folded > 0 ? html` <span class="soft" title="This row also counts similar arrivals: the log is bounded under a flood.">+${number(folded)}</span>` : ''}${sourceLine(source_name)}`,
      html`${badge(outcome)}${parked_reason === null || outcome === 'parked' ? '' : html`<br />${badge('parked')}`}`,
      cause === null ? html`<span class="soft">—</span>` : html`<span class="words">${code(cause)}</span>`,
      webhook_id === null
        ? html`<span class="soft">—</span>`
        : html`<a class="mono" href="${linkTo('/deliveries', { view: 'arrivals', webhook_id })}" data-copy="${webhook_id}">${foreign(webhook_id, 18)}</a>`,
      shortId('request', request_id),
      foreign(key_name, 20),
      number(skew_seconds, { unit: 's' }),
      status === 0 ? html`<span class="soft">—</span>` : String(status),
      foreign(remote, 40),
      number(ack_ms, { decimals: 1, unit: 'ms' }),
    ],
  }
}
