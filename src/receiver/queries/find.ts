import { z } from 'zod'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import * as submitting from '../domain/generations-schema.ts'
import * as schema from '../domain/schema.ts'
import type { StuckAfter } from '../reconciling/due.ts'
import { arrivalSchema, listArrivals } from './arrivals.ts'
import { readWithin } from './deadline.ts'
import { deliverySchema, listDeliveries } from './deliveries.ts'
import { textFilter } from './filters.ts'
import { isoAlways } from './page.ts'
import { listRequests, requestSchema } from './requests.ts'
import { uuidRange } from './search.ts'

const generations = columnsOf(submitting.generations)
const quarantine = columnsOf(arriving.quarantine)
const requests = columnsOf(schema.requests)

/** More than these are no answer to a search. */
const shown = 20
/** Metadata has no index, which each request would have to write: so many of the latest are looked through, down to the level that new ones have at most. */
const metadataRows = 20_000
const minIdCharacters = 4

export const findFiltersSchema = z.strictObject({
  q: textFilter.min(2, 'must have at least 2 characters').meta({
    description:
      'An id of any kind, or how it begins: of a request, a delivery, a webhook, an Idempotency-Key; also one that a refused body claims. Or a value of the metadata of one of the latest 20,000 requests, whole.',
  }),
})

export const foundSchema = z
  .object({
    requests: z.array(requestSchema).meta({ description: 'By their id.' }),
    by_metadata: z.array(requestSchema).meta({ description: 'By a value of their metadata.' }),
    submits: z.array(
      z.object({
        id: z.guid().meta({ description: 'The Idempotency-Key.' }),
        state: z.string(),
        model: z.string(),
        request_id: z.guid().nullable(),
        created_at: z.iso.datetime(),
      }),
    ),
    deliveries: z.array(deliverySchema),
    arrivals: z.array(arrivalSchema).meta({ description: 'Those that were refused or not acknowledged.' }),
    quarantined: z.array(
      z.object({
        id: z.int(),
        arrived_at: z.iso.datetime(),
        reason: z.string(),
        webhook_id: z.string().nullable(),
        request_id: z.guid().nullable().meta({ description: 'As the body claims; nothing of it is trusted.' }),
      }),
    ),
  })
  .meta({ id: 'Found' })
export type Found = z.infer<typeof foundSchema>

/** Everything that an id leads to, wherever it stands: also where it was refused, and so landed nowhere. */
export async function find(db: Database, { q }: { q: string }, when: StuckAfter): Promise<Found> {
  const [byMetadata, found] = await Promise.all([idsByMetadata(db, q), findByIds(db, q)])
  const isId = q.length >= minIdCharacters
  const isUuid = uuidRange(q).length > 0
  const [asRequests, deliveries, refused, unavailable] = await Promise.all([
    isUuid ? listRequests(db, { q, limit: shown }, when) : undefined,
    isId ? listDeliveries(db, { q, limit: shown }) : undefined,
    isId ? listArrivals(db, { q, outcome: 'refused', limit: shown }) : undefined,
    isId ? listArrivals(db, { q, outcome: 'unavailable', limit: shown }) : undefined,
  ])
  const others = await Promise.all(byMetadata.map((id) => listRequests(db, { q: id, limit: 1 }, when)))
  return {
    requests: asRequests?.data ?? [],
    by_metadata: others.flatMap(({ data }) => data),
    deliveries: deliveries?.data ?? [],
    arrivals: [...(refused?.data ?? []), ...(unavailable?.data ?? [])],
    ...found,
  }
}

async function findByIds(db: Database, q: string): Promise<Pick<Found, 'submits' | 'quarantined'>> {
  const [range] = uuidRange(q)
  return readWithin(db, async (tx) => {
    const submits = range
      ? await tx.execute<
          RowOf<typeof submitting.generations, 'idempotency_key' | 'state' | 'model' | 'request_id' | 'created_at'>
        >(sql`
          select ${list(generations, 'idempotency_key', 'state', 'model', 'request_id', 'created_at')} from mediadock.generations
          where ${generations.idempotency_key} ${range} or ${generations.request_id} ${range} limit ${shown}`)
      : []
    const quarantined = await tx.execute<
      RowOf<typeof arriving.quarantine, 'id' | 'arrived_at' | 'reason' | 'webhook_id' | 'request_id'>
    >(sql`
      select ${list(quarantine, 'id', 'arrived_at', 'reason', 'webhook_id', 'request_id')} from mediadock.quarantine
      where ${range ? sql`${quarantine.request_id} ${range} or` : sql``} starts_with(${quarantine.webhook_id}, ${q})
      order by ${quarantine.arrived_at} desc nulls last, ${quarantine.id} desc nulls last limit ${shown}`)
    return {
      submits: submits.map(({ idempotency_key: id, created_at, ...row }) => ({
        id,
        ...row,
        created_at: isoAlways(created_at),
      })),
      quarantined: quarantined.map((row) => ({ ...row, id: Number(row.id), arrived_at: isoAlways(row.arrived_at) })),
    }
  })
}

async function idsByMetadata(db: Database, q: string): Promise<string[]> {
  const values = JSON.stringify({ text: q, number: /^-?\d{1,15}(\.\d{1,9})?$/.test(q) ? Number(q) : q })
  const rows = await readWithin(db, (tx) =>
    tx.execute<RowOf<typeof schema.requests, 'request_id'>>(sql`
      select request_id from (
        select ${requests.request_id}, ${requests.metadata} from mediadock.requests
        order by ${requests.tracked_at} desc nulls last, ${requests.request_id} desc nulls last limit ${metadataRows}
      ) as latest
      where metadata is not null and jsonb_path_exists(metadata, '$.**{0 to 200} ? (@ == $text || @ == $number)', ${values}::jsonb) limit ${shown}`),
  )
  return rows.map(({ request_id }) => request_id)
}
