import type { ReceiverDeps } from '../program.ts'
import { costFiltersSchema, costsSchema, readCosts } from '../queries/costs.ts'
import type { Operation } from './operation.ts'
import { filtered } from './reads.ts'

/** The call that sums what generations cost, in credits. */
export function costOperations({ db }: ReceiverDeps): Operation[] {
  return [
    filtered('/costs', {
      operationId: 'showCosts',
      summary: 'Credits by model, key, day or a member of the metadata',
      description:
        'Sums settled and reserved credits of the requests of the default source, without those of the sandbox. ' +
        '`since` and `until` select by the time of tracking.',
      filters: costFiltersSchema,
      answer: { description: 'The sums', schema: costsSchema },
      send: async (wanted, res) => res.json(await readCosts(db, wanted)),
    }),
  ]
}
