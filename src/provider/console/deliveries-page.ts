import type { Express } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import type { Markup } from '../../platform/pages/console-page.ts'
import type { Catalog } from '../catalog/catalog-model.ts'
import { type DeliveryListing, standings } from '../webhooks/delivery-history.ts'
import type { ConsoleDeps } from './actions.ts'
import { deliveryTable } from './delivery-table.ts'
import { choice, choiceOf, cursorSchema, filtersIn, instantSchema, textSchema } from './filter-fields.ts'
import { type Found, idForm, linkTo, listPages, search, views } from './list-page.ts'
import type { Show } from './parts.ts'
import { findDeliveries, searchDeliveries } from './reads.ts'

const filterSchema = z.object({
  account: textSchema,
  state: choiceOf(standings),
  model: textSchema,
  since: instantSchema,
  until: instantSchema,
  q: textSchema,
  before: cursorSchema,
})
type Wanted = z.infer<typeof filterSchema>

export function showDeliveryList(app: Express, { db, catalog }: ConsoleDeps, show: Show): void {
  app.get('/deliveries', async (req, res) => {
    const wanted = filtersIn(req, filterSchema)
    const found = await search(wanted, {
      ids: 'request id or delivery id',
      nothing: 'No delivery.',
      find: (id) => findDeliveries(db, id),
      read: () => searchDeliveries(db, wanted),
    })
    show(req, res, 'Deliveries', deliveriesPage(found, wanted, catalog()))
  })
}

function deliveriesPage({ rows, older, none }: Found<DeliveryListing>, wanted: Wanted, catalog: Catalog): Markup {
  const { before, q, ...filters } = wanted
  const { account, state, model, since, until } = filters
  return html`<h1>Webhook deliveries</h1>
    <p>
      <a class="button quiet" href="${linkTo('/deliveries/test', { account })}">Send a test…</a>
      <a href="/deliveries/verifying">How to verify a webhook</a>, in TypeScript, Python and Go
    </p>
    ${views({ path: '/deliveries', name: 'state', choices: standings, filters })}
    <form class="inline" method="get" action="/deliveries">
      <input type="hidden" name="state" value="${state}" />
      <label>Account <input name="account" value="${account}" /></label>
      ${choice('model', model, [...catalog.keys()])}
      <label>Since (UTC) <input type="datetime-local" name="since" value="${since}" /></label>
      <label>Until (UTC) <input type="datetime-local" name="until" value="${until}" /></label>
      <label><button>Show</button></label>
    </form>
    ${idForm('/deliveries', 'Request id or delivery id', q)}
    <section class="card">
      ${deliveryTable(rows, none)}
      ${listPages('/deliveries', filters, { isFirst: before === undefined, older })}
    </section>`
}
