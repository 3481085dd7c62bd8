import { Router } from 'express'
import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/console-page.ts'
import { parseFilters } from '../queries/filters.ts'
import { find, findFiltersSchema, type Found } from '../queries/find.ts'
import { arrivalColumns, arrivalRow, deliveryColumns, deliveryRow } from './deliveries/delivery-rows.ts'
import { asOfNote } from './parts/as-of.ts'
import { usualOnly } from './parts/columns.ts'
import { tryRead } from './parts/failures.ts'
import { badge, card, code, emptyState, foreign, moment, problem, shortId, table } from './parts/parts.ts'
import { sendConsolePage, type ConsoleDeps } from './parts/shell.ts'
import { linkTo, queryOf } from './parts/url.ts'

/** One search for every id, wherever it stands: what landed, what was refused, and what nobody has heard of. */
export function searchRoutes(console: ConsoleDeps): Router {
  const { lists, clock, logger, settings } = console
  return Router().get('/search', async (req, res) => {
    const { q = '' } = queryOf(req)
    const read = await tryRead(logger, async () =>
      q === ''
        ? undefined
        : lists((db) =>
            find(db, parseFilters(findFiltersSchema, { q }), {
              now: clock(),
              stuckAfterSeconds: settings.stuckAfterSeconds,
            }),
          ),
    )
    const body = html`<div class="head"><h1>Search</h1><span class="soft">Finds any id (request, delivery, webhook, Idempotency-Key), ids in refused bodies, and values of metadata.</span></div>
      <form class="filters" method="get" action="/search" role="search"><div class="fields">
        <label class="wide"><span>Search</span><input type="search" name="q" value="${q}" data-search autocomplete="off" spellcheck="false" /></label><button>Search</button></div></form>
      ${read.ok ? read.value && html`${results(read.value.listed, q)} ${asOfNote(read.value.asOf, clock())}` : problem(read.problem)}`
    sendConsolePage(console, res, { title: 'Search', status: read.status, body })
  })
}

function results(found: Found, q: string): Markup {
  const { requests, by_metadata, submits, deliveries, arrivals, quarantined } = found
  const parts = [
    requests.length === 0 ? '' : card('Requests', requestsTable('Requests', requests)),
    by_metadata.length === 0
      ? ''
      : card('Requests by their metadata', requestsTable('Requests by their metadata', by_metadata)),
    submits.length === 0 ? '' : card('Submits', submitsTable(submits)),
    deliveries.length === 0
      ? ''
      : card(
          'Deliveries',
          table({ label: 'Deliveries', ...usualOnly(deliveryColumns, deliveries.map(deliveryRow)), empty: '' }),
        ),
    quarantined.length === 0 ? '' : card('Refused, and kept in the quarantine', quarantinedTable(quarantined)),
    arrivals.length === 0
      ? ''
      : card(
          'Refused or not acknowledged, in the log',
          table({ label: 'Arrivals', ...usualOnly(arrivalColumns, arrivals.map(arrivalRow)), empty: '' }),
        ),
  ]
  if (parts.every((part) => part === ''))
    return card(
      'Nothing has this id',
      emptyState(
        html`Neither a request nor a webhook has <span class="mono">${foreign(q, 100)}</span>, and no refused body that is kept claims it: nothing of it has arrived here, or it was pruned after RETENTION_DAYS. If another service submitted it, <code>POST /api/requests</code> with its request_id tracks it; the reconciler then polls it.`,
      ),
    )
  return html`${requests.every(({ landed_at }) => landed_at === null) && deliveries.length === 0 && quarantined.length > 0 ? problem(html`It has not landed: what claims it was refused, as is shown below with its cause.`) : ''} ${parts}`
}

function requestsTable(label: string, requests: Found['requests']): Markup {
  return table({
    label,
    columns: [
      { head: 'Request' },
      { head: 'State' },
      { head: 'Model' },
      { head: 'Key' },
      { head: 'Tracked' },
      { head: 'Landed' },
    ],
    rows: requests.map(({ id, status, overdue, model, key_name, tracked_at, landed_at }) => ({
      id,
      cells: [
        html`<a class="mono" href="/requests/${id}">${id}</a>`,
        html`${badge(status)} ${overdue ? badge('overdue') : ''}`,
        foreign(model, 28),
        foreign(key_name, 20),
        moment(tracked_at),
        moment(landed_at),
      ],
    })),
    empty: '',
  })
}

function submitsTable(submits: Found['submits']): Markup {
  return table({
    label: 'Submits',
    columns: [
      { head: 'Idempotency-Key' },
      { head: 'State' },
      { head: 'Request' },
      { head: 'Model' },
      { head: 'Received' },
    ],
    rows: submits.map(({ id, state, request_id, model, created_at }) => ({
      id,
      cells: [
        html`<span class="mono">${id}</span>`,
        badge(state, state === 'submitted' ? 'good' : 'warn'),
        shortId('request', request_id),
        foreign(model, 28),
        moment(created_at),
      ],
    })),
    empty: '',
  })
}

function quarantinedTable(quarantined: Found['quarantined']): Markup {
  return table({
    label: 'Quarantined',
    columns: [
      { head: 'Arrived' },
      { head: 'Why it was refused' },
      { head: 'Webhook id' },
      { head: 'Request, as claimed' },
      { head: '' },
    ],
    rows: quarantined.map(({ id, arrived_at, reason, webhook_id, request_id }) => ({
      id: String(id),
      cells: [
        html`<a href="/parked/quarantine/${id}">${moment(arrived_at, 'precise')}</a>`,
        code(reason),
        html`<span class="mono">${foreign(webhook_id, 40)}</span>`,
        html`<span class="mono">${foreign(request_id, 40)}</span>`,
        html`<a class="button quiet" href="${linkTo('/parked', { reason })}">What to do</a>`,
      ],
    })),
    empty: '',
  })
}
