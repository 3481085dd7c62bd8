import { html } from 'hono/html'
import { z } from 'zod'
import { type Markup, linkTo, moment, table } from '../../../platform/pages/parts.ts'
import type { Mentions } from '../../queries/find.ts'
import { arrivalColumns, deliveryColumns } from '../deliveries/delivery-rows.ts'
import { listTable } from '../parts/list-view.ts'
import { card, code, foreign, problem } from '../parts/parts.ts'

const shownOfArrival = ['received', 'outcome', 'cause', 'webhook_id', 'from']
const shownOfDelivery = ['received', 'says', 'outcome', 'cause', 'webhook_id']

/** The refused or unstored webhooks that name a request. Empty if there are none. */
export function refusedCard({ quarantined, arrivals }: Pick<Mentions, 'quarantined' | 'arrivals'>): Markup | '' {
  if (quarantined.length === 0 && arrivals.length === 0) return ''
  return card(
    'Webhooks that name it and were not stored',
    html`${quarantined.length === 0 ? '' : quarantinedTable(quarantined)}
      ${arrivals.length === 0 ? '' : listTable({ label: 'Refused or not acknowledged, in the log', columns: arrivalColumns, items: arrivals, names: shownOfArrival })}`,
  )
}

export function quarantinedTable(quarantined: Mentions['quarantined']): Markup {
  return table({
    label: 'Quarantined',
    columns: ['Arrived', 'Why it was refused', 'Webhook id', ''],
    rows: quarantined.map(({ id, arrived_at, reason, webhook_id }) => ({
      id: String(id),
      cells: [
        html`<a href="/parked/quarantine/${id}">${moment(arrived_at, 'precise')}</a>`,
        code(reason),
        html`<span class="mono">${foreign(webhook_id, 40)}</span>`,
        html`<a class="button quiet" href="${linkTo('/parked', { reason })}">What to do</a>`,
      ],
    })),
  })
}

/** The page of a request that only webhooks name: refused ones, or deliveries that have not landed. */
export function mentionedPage(id: string, mentions: Mentions): Markup {
  const { deliveries } = mentions
  const lead =
    deliveries.length > 0
      ? 'No result yet. A webhook naming this request was accepted and has not landed; see below.'
      : 'No result. A webhook naming this request was refused or could not be stored; see below.'
  return html`<div class="head"><h1>Request <span class="mono" title="${id}">${id.slice(0, 8)}</span></h1></div>
    <p class="lead">${lead}</p>
    <p class="soft">No service tracks <span class="mono" data-copy="${id}">${id}</span>, so the reconciler does not poll it. ${howToTrack(id)}</p>
    ${deliveries.length === 0 ? '' : card('Deliveries', listTable({ label: 'Deliveries of this request', columns: deliveryColumns, items: deliveries, names: shownOfDelivery }))}
    ${refusedCard(mentions)}`
}

/** The page of an id that names nothing here, with the next steps. */
export function unknownPage(id: string): Markup {
  const isRequestId = z.guid().safeParse(id).success
  const shown = html`<span class="mono">${foreign(id, 100)}</span>`
  const search = linkTo('/search', { q: id })
  return html`<h1>Not found</h1>
    ${problem(isRequestId ? html`No request has the id ${shown}, and no webhook that is kept names it.` : html`A request id is a uuid, and this is not one: ${shown}.`)}
    <p>What to try:</p>
    <ul>
      ${id.length < 2 ? '' : html`<li><a href="${search}">Search everything for it</a>. It may be the beginning of a request id, or the id of a webhook or of a delivery.</li>`}
      ${isRequestId ? html`<li>${howToTrack(id)}</li>` : ''}
    </ul>`
}

function howToTrack(id: string): Markup {
  const body = JSON.stringify({ request_id: id })
  return html`If another service submitted it, post <code data-copy="${body}">${body}</code> to <code>/api/requests</code>. The reconciler then polls it.`
}
