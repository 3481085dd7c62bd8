import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import * as schema from '../domain/schema.ts'

const requests = columnsOf(schema.requests)

/**
 * The requests among these whose rows somebody's transaction holds at this moment; nobody is
 * waited for. One that the transaction itself has inserted is not to be seen, and not among them.
 */
export async function lockedAmong(db: Database, requestIds: readonly string[]): Promise<Set<string>> {
  const which = sql`${requests.request_id} = any(${sql.param(requestIds)}::uuid[])`
  const rows = await db.execute<RowOf<typeof schema.requests, 'request_id'>>(sql`
    with free as materialized (select ${requests.request_id} from mediadock.requests where ${which} for update skip locked)
    select ${requests.request_id} from mediadock.requests where ${which} and ${requests.request_id} <> all(array(select request_id from free))`)
  return new Set(rows.map(({ request_id }) => request_id))
}
