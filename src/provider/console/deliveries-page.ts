import type { Express } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import { standings } from '../webhooks/delivery-history.ts'
import type { ConsoleDeps } from './actions.ts'
import { deliveryTable } from './delivery-table.ts'
import { choice, choiceOf, cursorSchema, instantSchema, textSchema } from './filter-fields.ts'
import { showList } from './list-page.ts'
import type { Show } from './parts.ts'
import { findDeliveries, searchDeliveries } from './reads.ts'

const schema = z.object({
  account: textSchema,
  state: choiceOf(standings),
  model: textSchema,
  since: instantSchema,
  until: instantSchema,
  q: textSchema,
  before: cursorSchema,
})

export function showDeliveryList(app: Express, { db, catalog }: ConsoleDeps, show: Show): void {
  showList(app, show, {
    path: '/deliveries',
    title: 'Deliveries',
    heading: 'Webhook deliveries',
    schema,
    tabs: { name: 'state', choices: standings },
    fields: ({ model, since, until }) => html`${choice('model', model, [...catalog().keys()])}
      <label>Since (UTC) <input type="datetime-local" name="since" value="${since}" /></label>
      <label>Until (UTC) <input type="datetime-local" name="until" value="${until}" /></label>`,
    ids: 'request id or delivery id',
    find: (id) => findDeliveries(db, id),
    read: (wanted) => searchDeliveries(db, wanted),
    nothing: 'No delivery.',
    table: deliveryTable,
  })
}
