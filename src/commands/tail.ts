import { followArrivals, fromNow } from '../receiver/queries/arrivals.ts'
import { arrivalFiltersSchema } from '../receiver/queries/filters.ts'
import { withReceiverDatabase } from './database.ts'
import { cell, filtersOf, optionsOf } from './listing.ts'
import { defineCommand, printJson } from './usage.ts'

export const command = defineCommand({
  help: `
mediadock tail [--outcome O] [--reason R] [--key-name N] [--request-id ID] [--webhook-id ID] [--json]

Prints arrivals as they are logged, until Ctrl-C. Takes the filters of mediadock arrivals.

  mediadock tail --outcome refused
  mediadock tail --json | jq -r .reason
`,
  options: { ...optionsOf(arrivalFiltersSchema), json: { type: 'boolean' } },
  run: async ({ json, ...given }, _words, env) => {
    const filters = filtersOf(arrivalFiltersSchema, given)
    const interruption = new AbortController()
    process.once('SIGINT', () => interruption.abort()).once('SIGTERM', () => interruption.abort())
    const clock = () => new Date()
    const logger = {
      warn: ({ err }: { err?: unknown }, message?: string) =>
        void process.stderr.write(`mediadock: ${message}: ${String(err)}\n`),
    }
    return withReceiverDatabase(env, async (db) => {
      const following = { filters, after: fromNow(clock()), closed: interruption.signal }
      for await (const { fresh, isCut } of followArrivals({ db, clock, logger }, following)) {
        for (const { arrival } of fresh) {
          const { arrived_at, status, outcome, reason, ack_ms, key_name, remote, request_id, webhook_id } = arrival
          const took = `${ack_ms.toFixed(1)} ms`
          const line = [arrived_at, status, outcome, reason, took, key_name, remote, request_id, webhook_id]
          if (json) printJson(arrival)
          else process.stdout.write(`${line.map(cell).join('  ')}\n`)
        }
        if (isCut) process.stderr.write('mediadock: too many arrivals to show all of them: see mediadock arrivals\n')
      }
      return 0
    })
  },
})
