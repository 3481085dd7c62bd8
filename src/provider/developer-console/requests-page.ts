import type { Express } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import type { Markup } from '../../pages/console-page.ts'
import type { Database } from '../../runtime/postgres/postgres.ts'
import { requestIdSchema, requestStatuses, requestStatusSchema } from '../../wire/schemas.ts'
import { catalog } from '../catalog/catalog-data.ts'
import { findModel } from '../catalog/catalog.ts'
import { environments } from '../domain/schema.ts'
import { accountLink, action, age, badge, isUnfinished, requestLink, type Show, table, time } from './parts.ts'
import { findRequests, type ListedRequest, searchRequests } from './request-search.ts'

const rowsShown = 50

const filterSchema = z.object({
  account: z.string().max(100).catch(''),
  model: z.string().max(100).catch(''),
  status: requestStatusSchema.or(z.literal('')).catch(''),
  environment: z.enum(environments).or(z.literal('')).catch(''),
  q: z.string().trim().max(100).catch(''),
  /** As searchRequests ends a page: microseconds since 1970 and an id. */
  before: z
    .string()
    .regex(/^\d{1,16}_[0-9a-f-]{36}$/)
    .optional()
    .catch(undefined),
})
type Wanted = z.infer<typeof filterSchema>

export function showRequests(app: Express, { db, clock }: { db: Database; clock: () => Date }, show: Show): void {
  app.get('/requests', async (req, res) => {
    const wanted = filterSchema.parse(req.query)
    const { rows, older } = wanted.q === '' ? await searched(db, wanted) : await found(db, wanted.q)
    show(req, res, 'Requests', requestsPage(rows, wanted, older, clock()))
  })
}

async function searched(db: Database, { account, model, status, environment, before }: Wanted) {
  const [atUs = '', id] = before?.split('_') ?? []
  const cursor = requestIdSchema.safeParse(id)
  const page = await searchRequests(db, {
    account: account || undefined,
    model: model || undefined,
    status: status || undefined,
    environment: environment || undefined,
    before: cursor.success ? { atUs, id: cursor.data } : undefined,
    limit: rowsShown,
  })
  return { rows: page.rows, older: page.older && `${page.older.atUs}_${page.older.id}` }
}

async function found(db: Database, q: string) {
  const id = requestIdSchema.safeParse(q)
  return { rows: id.success ? await findRequests(db, id.data, rowsShown) : [], older: undefined }
}

function requestsPage(rows: readonly ListedRequest[], wanted: Wanted, older: string | undefined, now: Date): Markup {
  const choice = (name: string, chosen: string, choices: readonly string[]) => html`<label>
    ${name.slice(0, 1).toUpperCase()}${name.slice(1)}
    <select name="${name}">
      <option value="">any</option>
      ${choices.map((each) => html`<option ${each === chosen ? html`selected` : ''}>${each}</option>`)}
    </select>
  </label>`
  const { account, model, status, environment, q } = wanted
  const kept = Object.entries({ account, model, status, environment }).filter(([, value]) => value !== '')
  const link = older === undefined ? '' : `/requests?${new URLSearchParams([...kept, ['before', older]]).toString()}`
  const none = rows.length === 0 && older !== undefined ? 'None among those that were looked at: go on to the older ones.' : 'No request.'
  return html`<h1>Requests</h1>
    <form class="inline" method="get" action="/requests">
      <label>Account <input name="account" value="${account}" /></label>
      ${choice(
        'model',
        model,
        catalog.map(({ slug }) => slug),
      )}${choice('status', status, requestStatuses)}${choice('environment', environment, environments)}
      <label><button>Show</button></label>
    </form>
    <form class="inline" method="get" action="/requests" role="search">
      <label>Request id or Idempotency-Key <input class="uuid" name="q" value="${q}" spellcheck="false" autocomplete="off" /></label>
      <label><button class="quiet">Find</button></label>
    </form>
    <section class="card">
      ${requestTable(rows, now, none)}
      ${link === '' ? '' : html`<p><a href="${link}" rel="next">Older</a></p>`}
    </section>`
}

export function requestTable(requests: readonly ListedRequest[], now: Date, empty = 'No request.'): Markup {
  const rows = requests.map(
    ({ id, account, key_name, environment, model, status, progress, cost, created_at, completed_at, thumbnail }) =>
      html`<tr>
        <td>${kindOf(model, thumbnail)}</td>
        <td>${requestLink(id)}</td>
        <td>${accountLink(account)}</td>
        <td>${key_name}</td>
        <td>${environment}</td>
        <td>${model}</td>
        <td>${badge(status)}${status === 'IN_PROGRESS' ? html` ${progress} %` : ''}</td>
        <td class="number">${cost}</td>
        <td>${age(created_at, now)}</td>
        <td>${time(completed_at)}</td>
        <td>${isUnfinished(status) ? action(`/requests/${id}/cancel`, 'Cancel', 'danger') : ''}</td>
      </tr>`,
  )
  const heads = ['Kind', 'Request', 'Account', 'Key', 'Environment', 'Model', 'Status', 'Cost', 'Submitted', 'Ended (UTC)', '']
  return table('Requests', heads, rows, empty)
}

function kindOf(model: string, thumbnail: string | null): Markup {
  const kind = findModel(model)?.type ?? 'unknown'
  const isShown = thumbnail !== null && /^https?:/.test(thumbnail)
  return isShown ? html`<img class="thumbnail" src="${thumbnail}" alt="${kind}" width="40" height="40" loading="lazy" />` : html`${kind}`
}
