import { listArrivals } from '../receiver/queries/arrivals.ts'
import { arrivalFiltersSchema } from '../receiver/queries/filters.ts'
import { listCommand } from './listing.ts'

export const command = listCommand({
  help: `
mediadock arrivals [--outcome accepted|duplicate|parked|hint|refused|unavailable] [--reason R] [--state S]
                   [--request-id ID] [--webhook-id ID] [--key-name N] [--source-name S]
                   [--min-ack-ms N] [--min-skew-seconds N] [--since T] [--until T] [--limit N] [--json]

Lists HTTP arrivals, also refused ones, newest first. --json prints one line per arrival. Times are ISO 8601,
or an age like 15m, 2h, 1d.

  mediadock arrivals --outcome refused --since 15m
  mediadock arrivals --reason no_matching_secret --limit 1000 --json | jq -r .remote | sort | uniq -c
`,
  filters: arrivalFiltersSchema,
  list: (db, query) => listArrivals(db, query),
  columns: {
    arrived: ({ arrived_at }) => arrived_at,
    answer: ({ status }) => status,
    outcome: ({ outcome }) => outcome,
    reason: ({ reason }) => reason,
    ms: ({ ack_ms }) => ack_ms.toFixed(1),
    key: ({ key_name }) => key_name,
    remote: ({ remote }) => remote,
    request: ({ request_id }) => request_id,
    'webhook id': ({ webhook_id }) => webhook_id,
  },
})
