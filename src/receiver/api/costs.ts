import type { ReceiverDeps } from '../program.ts'
import { costFiltersSchema, costsSchema, readCosts } from '../queries/costs.ts'
import { parseFilters } from '../queries/filters.ts'
import { responses, type Operation } from './operation.ts'

/** The call that sums what generations cost, in credits. */
export function costOperations({ db }: ReceiverDeps): Operation[] {
  return [
    {
      method: 'get',
      path: '/costs',
      document: {
        operationId: 'showCosts',
        summary: 'Credits by model, key, day or a member of the metadata',
        description: 'Sums settled and reserved credits of live requests, by the time of tracking.',
        requestParams: { query: costFiltersSchema },
        responses: responses({ 200: { description: 'The sums', schema: costsSchema } }, 'invalid_filter'),
      },
      answer: async (req, res) => res.json(await readCosts(db, parseFilters(costFiltersSchema, req.query))),
    },
  ]
}
