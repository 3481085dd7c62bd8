import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import * as schema from '../domain/schema.ts'
import { type DeliveryListing, listedColumns, type Standing, standingOf } from '../webhooks/delivery-history.ts'
import { type NewestPage, type NewestSearch, rowsShown, searchNewest } from './newest-first.ts'

const d = columnsOf(schema.deliveries, 'd')
const t = columnsOf(schema.deliveries, 't')
const requests = columnsOf(schema.requests)

export type DeliveryFilter = Pick<NewestSearch, 'account' | 'before'> & {
  state?: Standing | undefined
  /** The model of the request. A test has none. */
  model?: string | undefined
  /** The time of creation, in UTC: from `since`, before `until`. */
  since?: string | undefined
  until?: string | undefined
}

export async function searchDeliveries(
  db: Database,
  { state, model, since, until, ...page }: DeliveryFilter,
): Promise<NewestPage<DeliveryListing>> {
  const isOfModel = sql`exists (select from provider.requests
    where ${requests.id} = looked.request_id and ${requests.model} = ${model ?? null})`
  const conditions = [state && sql`looked.standing = ${state}`, model && isOfModel].filter((each) => !!each)
  return searchNewest<DeliveryListing>(db, {
    ...page,
    table: sql`provider.deliveries`,
    columns: sql`t.id, t.request_id, t.created_at, ${standingOf(t)} as standing`,
    bounds: sql`${since ? sql`and t.created_at >= ${since}::timestamp at time zone 'UTC'` : sql``}
      ${until ? sql`and t.created_at < ${until}::timestamp at time zone 'UTC'` : sql``}`,
    wanted: conditions.length === 0 ? undefined : sql.join(conditions, sql` and `),
    rows: sql`select ${listedColumns} from wanted w join provider.deliveries d on ${d.id} = w.id`,
  })
}

/** Finds deliveries by delivery id or request id, each with one probe of an index. */
export async function findDeliveries(db: Database, id: string): Promise<DeliveryListing[]> {
  return await db.execute<DeliveryListing>(sql`
    with wanted as (
      select ${d.id} from provider.deliveries d where ${d.id} = ${id}::uuid
      union
      (select ${d.id} from provider.deliveries d where ${d.request_id} = ${id}::uuid limit ${rowsShown}::int)
    )
    select ${listedColumns} from wanted w join provider.deliveries d on ${d.id} = w.id
    order by ${d.created_at} desc, ${d.id} desc`)
}
