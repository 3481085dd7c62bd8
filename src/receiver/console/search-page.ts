import { Router } from 'express'
import { html } from 'hono/html'
import { type Markup, emptyState, moment } from '../../platform/pages/parts.ts'
import { parseFilters } from '../queries/filters.ts'
import { find, findFiltersSchema, type Found } from '../queries/find.ts'
import type { Request } from '../queries/requests.ts'
import { arrivalColumns, deliveryColumns } from './deliveries/delivery-rows.ts'
import { tryRead } from './parts/failures.ts'
import { listTable, type ListColumn } from './parts/list-view.ts'
import { badge, card, foreign, problem, shortId, queryOf } from './parts/parts.ts'
import { sendConsolePage, type ConsoleDeps } from './parts/shell.ts'
import { requestColumns } from './requests/requests-page.ts'
import { quarantinedTable } from './requests/untracked-request.ts'

const about =
  'Finds requests, deliveries and submits by their id or its beginning, and webhooks and requests of other sources by their whole id. Refused webhooks too.'

/** One search for every kind of id. A whole id opens its page at once. */
export function searchRoutes(console: ConsoleDeps): Router {
  const { db, logger, links } = console
  return Router().get('/search', async (req, res) => {
    const { q = '' } = queryOf(req)
    const when = console.when()
    const read = await tryRead(logger, async () =>
      q === '' ? undefined : find(db, parseFilters(findFiltersSchema, { q }), when),
    )
    const page = read.ok && read.value ? pageOf(read.value, q) : undefined
    if (page !== undefined) return res.redirect(303, page)
    const body = html`<form class="filters" method="get" action="/search" role="search"><div class="fields">
        <label class="wide"><span>Search</span><input type="search" name="q" value="${q}" data-search autocomplete="off" spellcheck="false" /></label><button>Search</button></div></form>
      ${read.ok ? read.value && results(read.value, q, requestColumns({ when, links })) : problem(read.problem)}`
    return sendConsolePage(console, res, { title: 'Search', about, status: read.status, body })
  })
}

/** The page of the only match of exactly this id; undefined for none or several. */
function pageOf({ requests, submits, deliveries, quarantined, arrivals }: Found, q: string): string | undefined {
  const id = q.toLowerCase()
  const paths = new Set([
    ...requests.flatMap((one) => (one.id === id || one.external_id === q ? [`/requests/${one.id}`] : [])),
    ...submits.flatMap((submit) =>
      submit.id === id && submit.request_id !== null ? [`/requests/${submit.request_id}`] : [],
    ),
    ...deliveries.flatMap((one) => {
      if (one.id === id || one.webhook_id === q) return [`/deliveries/${one.id}`]
      return one.request_id === id ? [`/requests/${id}`] : []
    }),
    ...[...quarantined, ...arrivals].flatMap((one) => (one.request_id === id ? [`/requests/${id}`] : [])),
  ])
  return paths.size === 1 ? [...paths][0] : undefined
}

function results(found: Found, q: string, columns: readonly ListColumn<Request>[]): Markup {
  const { requests, submits, deliveries, arrivals, quarantined } = found
  const part = (title: string, found: readonly unknown[], shown: () => Markup) =>
    found.length === 0 ? '' : card(title, shown())
  const parts = [
    part('Requests', requests, () => listTable({ label: 'Requests', columns, items: requests })),
    part('Submits', submits, () => listTable({ label: 'Submits', columns: submitColumns, items: submits })),
    part('Deliveries', deliveries, () =>
      listTable({ label: 'Deliveries', columns: deliveryColumns, items: deliveries }),
    ),
    part('Refused, kept in the quarantine', quarantined, () => quarantinedTable(quarantined)),
    part('Refused or not acknowledged, in the log', arrivals, () =>
      listTable({ label: 'Arrivals', columns: arrivalColumns, items: arrivals }),
    ),
  ]
  if (parts.every((part) => part === '')) return nothingFound(q)
  const isRefused = requests.every(({ landed_at }) => landed_at === null) && deliveries.length === 0
  return html`${isRefused && quarantined.length > 0 ? problem('No result. A webhook with this id was refused; see below.') : ''} ${parts}`
}

function nothingFound(q: string): Markup {
  const body = html`Nothing was found for <span class="mono">${foreign(q, 100)}</span>. A whole id that is not found never arrived here, or its delivery was pruned after RETENTION_DAYS. Of a webhook id, only the whole is found. If another service submitted the request, track it with <code>POST /api/requests</code>. The reconciler then polls it.`
  return card('No match', emptyState(body))
}

const submitColumns: readonly ListColumn<Found['submits'][number]>[] = [
  { head: 'Idempotency-Key', cell: ({ id }) => html`<span class="mono">${id}</span>` },
  { head: 'State', cell: ({ state }) => badge(state, state === 'submitted' ? 'good' : 'warn') },
  { head: 'Request', cell: ({ request_id }) => shortId('request', request_id) },
  { head: 'Model', cell: ({ model }) => foreign(model, 28) },
  { head: 'Received', cell: ({ created_at }) => moment(created_at) },
]
