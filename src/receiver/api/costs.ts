import type { ReceiverDeps } from '../program.ts'
import { costFiltersSchema, costsSchema, readCosts } from '../queries/costs.ts'
import { parseFilters } from '../queries/filters.ts'
import { responses, type Operation } from './operation.ts'

/** What generations cost, in credits. */
export function costOperations({ db }: ReceiverDeps): Operation[] {
  return [
    {
      method: 'get',
      path: '/costs',
      document: {
        operationId: 'showCosts',
        summary: 'Credits by model, key, day or a member of the metadata',
        description: 'Of live requests by the time of tracking, settled and reserved credits.',
        requestParams: { query: costFiltersSchema },
        responses: responses({ 200: { description: 'The sums', schema: costsSchema } }, 'invalid_filter'),
      },
      answer: async (req, res) => res.json(await readCosts(db, parseFilters(costFiltersSchema, req.query))),
    },
  ]
}
