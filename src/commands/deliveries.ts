import { listDeliveries } from '../receiver/queries/deliveries.ts'
import { deliveryFiltersSchema } from '../receiver/queries/filters.ts'
import { listCommand } from './listing.ts'

export const command = listCommand({
  help: `
mediadock deliveries [--state pending|processed|parked] [--outcome O] [--reason R] [--request-id ID]
                     [--webhook-id ID] [--key-name N] [--source-name S] [--model M] [--flag F] [--ids ID,ID…]
                     [--min-arrivals N] [--min-ack-ms N] [--min-skew-seconds N] [--since T] [--until T]
                     [--limit N] [--json]

Lists accepted deliveries, newest first. --json prints one line per delivery. Times are ISO 8601, or an age
like 15m, 2h, 1d.

  mediadock deliveries --state parked
  mediadock deliveries --outcome contradiction --since 1d
  mediadock deliveries --request-id 2f0d6c1e-0000-4000-8000-000000000001 --json | jq .flags
`,
  filters: deliveryFiltersSchema,
  list: (db, query) => listDeliveries(db, query),
  columns: {
    received: ({ received_at }) => received_at,
    state: ({ state }) => state,
    outcome: ({ outcome }) => outcome,
    reason: ({ reason }) => reason,
    key: ({ key_name }) => key_name,
    request: ({ request_id }) => request_id,
    id: ({ id }) => id,
    'webhook id': ({ webhook_id }) => webhook_id,
  },
})
