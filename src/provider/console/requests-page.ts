import type { Express } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import { HttpError } from '../../platform/http/http.ts'
import { formatOrCut, shownCharacters } from '../../platform/json-text.ts'
import { sendPage } from '../../platform/pages/console-page.ts'
import { action, facts, type Markup, moment, table, time } from '../../platform/pages/parts.ts'
import { requestStatuses } from '../../wire/schemas.ts'
import { environments } from '../domain/schema.ts'
import type { DeliveryListing } from '../webhooks/delivery-history.ts'
import { movementTable } from './account-pages.ts'
import { type ConsoleDeps, idOf } from './actions.ts'
import { deliveryTable } from './deliveries-page.ts'
import { choiceOf, showList, textSchema } from './list-page.ts'
import { accountLink, badge, chargeOf, isUnfinished, refreshedFrom, requestLink, type Show } from './parts.ts'
import {
  type EntryRow,
  findDeliveries,
  findRequests,
  listEntriesOf,
  readRequest,
  type RequestDetail,
  type RequestRow,
  searchRequests,
} from './reads.ts'

const schema = z.object({
  model: textSchema,
  status: choiceOf(requestStatuses),
  environment: choiceOf(environments),
})

/** The list of requests, and the page of each, which refreshes until the request has ended. */
export function showRequests(app: Express, { db, catalog, clock, statusReader }: ConsoleDeps, show: Show): void {
  showList(app, show, {
    path: '/requests',
    heading: 'Requests',
    schema,
    fields: () => [
      { name: 'model', label: 'Model', options: [...catalog().keys()] },
      { name: 'status', label: 'Status', options: requestStatuses },
      { name: 'environment', label: 'Environment', options: environments },
    ],
    ids: 'request id or Idempotency-Key',
    find: (id) => findRequests(db, id),
    read: (wanted) => searchRequests(db, wanted),
    nothing: 'No request.',
    table: (rows, none) => requestTable(rows, clock(), none),
  })
  const view = async (id: string): Promise<RequestView> => {
    const asOf = clock()
    const request = await readRequest(db, id)
    if (request === undefined) throw new HttpError(404, 'not_found', 'there is no such request')
    const { account: accountId, environment } = request
    const [status, deliveries, entries] = await Promise.all([
      request.status === 'IN_QUEUE' ? statusReader({ requestId: id, accountId, environment, withLogs: false }) : null,
      findDeliveries(db, id),
      listEntriesOf(db, id),
    ])
    return { request, position: status?.queue_position ?? null, deliveries, entries, asOf }
  }
  app.get('/requests/:id', async (req, res) => show(req, res, 'Request', requestPage(await view(idOf(req)))))
  app.get('/requests/:id/now', async (req, res) => sendPage(res, currentState(await view(idOf(req)))))
}

function requestTable(requests: readonly RequestRow[], now: Date, empty: string): Markup {
  const rows = requests.map((request) => {
    const { id, account, key_name: key, status, progress } = request
    return [
      requestLink(id),
      html`<span class="cut short" title="${account}">${accountLink(account)}</span>`,
      html`<span class="cut short" title="${key}">${key}</span>`,
      request.environment,
      request.model,
      html`${badge(status)}${status === 'IN_PROGRESS' ? html` ${progress} %` : ''}`,
      chargeOf(request),
      moment(request.created_at),
      moment(request.completed_at),
      isUnfinished(status) ? action({ path: `/requests/${id}/cancel`, label: 'Cancel', tone: 'danger' }) : '',
    ]
  })
  const first = ['Request', 'Account', 'Key', 'Environment', 'Model', 'Status']
  const columns = [...first, { head: 'Charge', kind: 'number' }, 'Submitted', 'Ended', ''] as const
  const asOf = rows.length === 0 ? '' : html`<p class="soft">As of ${time(now.toISOString())} UTC.</p>`
  return html`${table({ label: 'Requests', columns, rows, empty })}${asOf}`
}

type RequestView = {
  request: RequestDetail
  /** The place in the queue, 0 for the next; null unless queued. */
  position: number | null
  deliveries: readonly DeliveryListing[]
  entries: readonly EntryRow[]
  /** The time of the read, shown because a disconnected page is not refreshed. */
  asOf: Date
}

function requestPage(view: RequestView): Markup {
  const { id, model, input } = view.request
  return html`<h1>Request <span class="mono">${id}</span></h1>
    ${currentState(view)}
    <section class="card">
      <h2>Input</h2>
      <pre tabindex="0">${formatOrCut(input)}</pre>
      <p><a href="/models/${encodeURIComponent(model)}?like=${id}&key=${view.request.api_key_id}">Run ${model} with this input again…</a></p>
    </section>`
}

/** The part that fetches itself until the request has ended. */
function currentState(view: RequestView): Markup {
  const { request, position, deliveries, entries, asOf } = view
  const { id, account, model, status, progress, cost, attempts, error_code, error_message, webhook_url, output, logs } =
    request
  const unfinished = isUnfinished(status)
  return html`<div id="state" ${unfinished ? refreshedFrom(`/requests/${id}/now`) : ''}>
    <section class="card">
      ${facts([
        [
          'Status',
          html`<div role="status" class="live-status">
          ${badge(status)} ${error_code === null ? '' : `${error_code}: ${error_message}`}
          ${position === null ? '' : position === 0 ? 'next in the queue' : `${position} before it in the queue`}
          ${status === 'IN_PROGRESS' ? html`<progress max="100" value="${progress}" aria-label="Progress"></progress> ${progress} %` : ''}
        </div>${unfinished ? html`<span class="soft">as of ${time(asOf.toISOString())} UTC</span>` : ''}`,
        ],
        ['Account', html`${accountLink(account)}, key ${request.key_name}, ${request.environment}`],
        ['Model', html`<a href="/models/${encodeURIComponent(model)}">${model}</a>`],
        ['Price', html`${cost} credits${fate(request)}`],
        ['Runs', attempts],
        ['Submitted, ended', html`${time(request.created_at)}, ${time(request.completed_at)}${took(request)}`],
        ['Webhook', webhook_url ?? 'none'],
      ])}
      ${unfinished ? action({ path: `/requests/${id}/cancel`, label: 'Cancel and refund', tone: 'danger' }) : ''}
    </section>
    ${output === null ? '' : mediaCard(output)}
    <section class="card"><h2>Webhook deliveries</h2>${deliveryTable(deliveries)}</section>
    <section class="card"><h2>Ledger</h2>${movementTable(entries, 'Nothing was charged.')}</section>
    ${output === null ? '' : html`<section class="card"><h2>Output</h2><pre tabindex="0">${formatOrCut(output)}</pre></section>`}
    ${logs.length === 0 ? '' : html`<section class="card"><h2>Logs</h2><pre tabindex="0">${logs.join('\n').slice(0, shownCharacters)}</pre></section>`}
  </div>`
}

function fate({ environment, status }: RequestDetail): string {
  if (environment === 'sandbox') return ', not charged'
  return status === 'FAILED' || status === 'CANCELED' ? ', refunded' : ''
}

/** The time from the submit to the end, in the queue and in its runs. */
function took({ created_at, completed_at }: RequestDetail): string {
  if (completed_at === null) return ''
  return ` (${((Date.parse(completed_at) - Date.parse(created_at)) / 1000).toFixed(1)} s)`
}

const linked = z.object({ url: z.url({ protocol: /^https?$/ }) })
const outputSchema = z.object({
  images: z.array(linked).optional(),
  video: linked.optional(),
  audio: linked.optional(),
})

/** The pictures, video or sound of a result, with players. */
function mediaCard(output: string): Markup | '' {
  const parsed = outputSchema.safeParse(JSON.parse(output))
  if (!parsed.success) return ''
  const { images = [], video, audio } = parsed.data
  return html`<section class="card"><h2>Media</h2>
    <div class="live-media">
      ${images.map(({ url }, at) => html`<a href="${url}"><img src="${url}" alt="Picture ${at + 1} of this request" loading="lazy" /></a>`)}
      ${video === undefined ? '' : html`<video src="${video.url}" controls preload="metadata" aria-label="Video of this request"></video>`}
      ${audio === undefined ? '' : html`<audio src="${audio.url}" controls preload="metadata" aria-label="Sound of this request"></audio>`}
    </div></section>`
}
