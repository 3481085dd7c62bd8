import type { Express } from 'express'
import { z } from 'zod'
import { standings } from '../webhooks/delivery-history.ts'
import type { ConsoleDeps } from './actions.ts'
import { deliveryTable } from './delivery-table.ts'
import { choiceOf } from './filter-fields.ts'
import { showList } from './list-page.ts'
import type { Show } from './parts.ts'
import { findDeliveries, searchDeliveries } from './reads.ts'

const schema = z.object({ state: choiceOf(standings) })

export function showDeliveryList(app: Express, { db }: ConsoleDeps, show: Show): void {
  showList(app, show, {
    path: '/deliveries',
    heading: 'Webhook deliveries',
    schema,
    fields: () => [{ name: 'state', label: 'State', options: standings }],
    ids: 'request id or delivery id',
    find: (id) => findDeliveries(db, id),
    read: (wanted) => searchDeliveries(db, wanted),
    nothing: 'No delivery.',
    table: deliveryTable,
  })
}
