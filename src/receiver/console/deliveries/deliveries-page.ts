import { Router, type Response } from 'express'
import { html } from 'hono/html'
import { type Markup, linkTo, type Field, type Query, tabs } from '../../../platform/pages/parts.ts'
import { arrivalOutcomes } from '../../domain/arrivals-schema.ts'
import { parkReasons, refusalReasons } from '../../on-call/cause-words.ts'
import { listArrivals } from '../../queries/arrivals.ts'
import { readParkedCauses } from '../../queries/causes.ts'
import { readWithin } from '../../queries/deadline.ts'
import { listDeliveries, type DeliveryEntry } from '../../queries/deliveries.ts'
import {
  arrivalFiltersSchema,
  arrivalListSchema,
  deliveryFlags,
  deliveryListSchema,
  deliveryOutcomes,
  deliveryStates,
} from '../../queries/filters.ts'
import { keptFrom } from '../../upkeep/retention.ts'
import { causeCard } from '../parts/cause.ts'
import {
  causeField,
  keyFields,
  webhookIdField,
  listTable,
  type ListColumn,
  looks,
  sendList,
} from '../parts/list-view.ts'
import { queryOf, without } from '../parts/parts.ts'
import type { ConsoleDeps } from '../parts/shell.ts'
import { arrivalColumns, deliveryColumns } from './delivery-rows.ts'

const path = '/deliveries'
const title = 'Deliveries'

export function deliveriesRoutes(console: ConsoleDeps): Router {
  return Router().get(path, (req, res) => {
    const query = queryOf(req)
    return query['view'] === 'arrivals' ? sendArrivals(console, res, query) : sendDeliveries(console, res, query)
  })
}

/** The parameters that choose rows. */
const filtersIn = (query: Query) => without(query, ...looks, 'cursor', 'limit')

const requestIdField: Field = { name: 'request_id', label: 'Request id', more: true }
const measures: readonly Field[] = [
  { name: 'min_ack_ms', label: 'Answered in at least (ms)', more: true },
  { name: 'min_skew_seconds', label: 'Clock skew of at least (s)', more: true },
]

async function sendDeliveries(console: ConsoleDeps, res: Response, query: Query): Promise<void> {
  const filters = filtersIn(query)
  const fields: Field[] = [
    webhookIdField,
    { name: 'state', label: 'State', options: deliveryStates },
    { name: 'outcome', label: 'Outcome', options: deliveryOutcomes },
    ...keyFields(console.keys()),
    causeField('Parked because', parkReasons, true),
    { name: 'flag', label: 'Flag', options: deliveryFlags, more: true },
    { name: 'model', label: 'Model', more: true },
    { name: 'min_arrivals', label: 'Arrived at least (times)', more: true },
    ...measures,
    requestIdField,
    ...(filters['ids'] === undefined ? [] : [{ name: 'ids', label: 'Delivery ids', more: true }]),
  ]
  await sendList(console, res, {
    title,
    about: 'Every accepted delivery once, with its outcome.',
    above: html`${viewTabs(query)} ${await causeOf(console, filters)}`,
    path,
    query,
    fields,
    schema: deliveryListSchema,
    read: (wanted) => listDeliveries(console.db, wanted),
    shown: ({ data }) => {
      const columns = [selectColumn, ...deliveryColumns]
      return html`${bulkBar(filters, data.length)}
        <div class="card table-card">${listTable({ label: title, columns, items: data, empty: emptyDeliveries(filters, console) })}</div>`
    },
  })
}

/** The card of the cause where the list shows the deliveries that it parked. */
async function causeOf({ db, settings }: ConsoleDeps, { state, reason }: Query): Promise<Markup | ''> {
  if (state !== 'parked' || reason === undefined) return ''
  return causeCard(reason, { causes: await readWithin(db, (tx) => readParkedCauses(tx)), keys: settings })
}

async function sendArrivals(console: ConsoleDeps, res: Response, query: Query): Promise<void> {
  const filters = filtersIn(query)
  await sendList(console, res, {
    title,
    about: 'Every webhook as it arrived and how it was answered, refused ones included.',
    above: viewTabs(query),
    path,
    query,
    fields: [
      webhookIdField,
      { name: 'outcome', label: 'Outcome', options: arrivalOutcomes },
      causeField('Cause', [...refusalReasons, ...parkReasons]),
      ...keyFields(console.keys()),
      { name: 'state', label: "Delivery's state", options: deliveryStates, more: true },
      ...measures,
      requestIdField,
    ],
    schema: arrivalListSchema,
    read: (wanted) => listArrivals(console.db, wanted),
    shown: ({ data }) =>
      html`<div class="bulk"><button type="button" class="quiet" aria-pressed="false" data-tail="${linkTo('/api/arrivals', filters)}" data-key-action="tail">Tail <kbd>t</kbd></button></div>
        <div class="card table-card">${listTable({ label: 'Arrivals', columns: arrivalColumns, items: data, rowsId: 'arrivals', empty: emptyArrivals(filters, console) })}</div>`,
  })
}

const selectColumn: ListColumn<DeliveryEntry> = {
  head: html`<input type="checkbox" data-select-all aria-label="Select all on this page" />`,
  kind: 'select',
  cell: ({ id }) =>
    html`<input type="checkbox" name="id" value="${id}" form="bulk" aria-label="Select delivery ${id.slice(0, 8)}" />`,
}

/** The link to the other tab keeps the filters that both tabs offer. */
function viewTabs(query: Query): Markup {
  const arrivals = query['view'] === 'arrivals'
  const common = Object.keys(arrivalFiltersSchema.shape).filter((name) => name !== 'outcome' && name !== 'reason')
  const shared = Object.fromEntries(common.map((name) => [name, query[name]]))
  return tabs('View', [
    { label: 'Deliveries', href: arrivals ? linkTo(path, shared) : linkTo(path, query), current: !arrivals },
    {
      label: 'Arrivals',
      href: arrivals ? linkTo(path, query) : linkTo(path, { ...shared, view: 'arrivals' }),
      current: arrivals,
    },
  ])
}

/** The actions for the selected rows, or for all that match the filters. */
function bulkBar(filters: Query, shown: number): Markup {
  const filtered = Object.keys(filters).length > 0
  return html`<form class="bulk" id="bulk" method="get" action="/deliveries/replay">
    ${
      shown === 0
        ? ''
        : html`<button class="quiet" data-needs-selection data-key-action="replay">Replay selected (<span data-selected-count>0</span>)… <kbd>r</kbd></button>
          ${
            filtered
              ? html`<a class="button quiet" href="${linkTo('/deliveries/replay', filters)}">Replay all that match…</a>`
              : html`<span class="soft">To replay many, filter them first.</span>`
          }`
    }
    <span class="spacer"></span><a href="/deliveries/replays">Replays</a>
    <a class="button quiet" href="${linkTo(path, { view: 'arrivals', tail: 'on', webhook_id: filters['webhook_id'], key_name: filters['key_name'] })}" data-key-action="tail">Tail arrivals <kbd>t</kbd></a>
  </form>`
}

function emptyDeliveries(filters: Query, { settings: { retentionDays }, clock }: ConsoleDeps): Markup {
  if (Object.keys(filters).length === 0)
    return html`No webhook has been accepted in the ${retentionDays} days for which deliveries are kept. If you expected some, check whether <a href="${path}?view=arrivals">any arrived</a> and were refused.`
  const isForgotten =
    filters['until'] !== undefined && Date.parse(filters['until']) <= keptFrom(clock(), retentionDays).getTime()
  if (isForgotten)
    return html`Nothing of that time is kept: deliveries are pruned after ${retentionDays} days (RETENTION_DAYS). The <a href="/requests">requests</a> and their results stay.`
  return html`No delivery matches these filters. Refused webhooks are not deliveries; see the <a href="${linkTo(path, { view: 'arrivals', webhook_id: filters['webhook_id'], since: filters['since'], until: filters['until'] })}">arrivals</a>.`
}

function emptyArrivals(filters: Query, { settings: { retentionDays } }: ConsoleDeps): Markup {
  if (Object.keys(filters).length === 0)
    return html`No webhook has arrived in the ${retentionDays} days for which arrivals are kept. The provider posts to WEBHOOK_PUBLIC_URL. Check that it reaches this receiver.`
  return html`No arrival matches these filters. The log is kept for RETENTION_DAYS.`
}
