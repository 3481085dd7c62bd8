import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL, StringChunk } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RequestStatus } from '../../wire/schemas.ts'
import type { Environment } from '../domain/schema.ts'
import * as schema from '../domain/schema.ts'
import { type NewestPage, type NewestSearch, rowsShown, searchNewest } from './newest-first.ts'
import { requestColumns, type RequestRow } from './reads.ts'

const a = columnsOf(schema.accounts, 'a')
const i = columnsOf(schema.idempotencyKeys, 'i')
const k = columnsOf(schema.apiKeys, 'k')
const r = columnsOf(schema.requests, 'r')
const t = columnsOf(schema.requests, 't')

/** `thumbnail` is the link of its first picture. */
export type ListedRequest = RequestRow & { thumbnail: string | null }

export type RequestFilter = Pick<NewestSearch, 'account' | 'before'> & {
  model?: string | undefined
  status?: RequestStatus | undefined
  environment?: Environment | undefined
}

export async function searchRequests(
  db: Database,
  { model, status, environment, ...page }: RequestFilter,
): Promise<NewestPage<ListedRequest>> {
  const conditions = Object.entries({ model, status, environment }).flatMap(([name, value]) =>
    value === undefined ? [] : [sql`looked.${new StringChunk(name)} = ${value}`],
  )
  return searchNewest<ListedRequest>(db, {
    ...page,
    table: sql`provider.requests`,
    columns: list(t, 'id', 'created_at', 'model', 'status', 'environment'),
    wanted: conditions.length === 0 ? undefined : sql.join(conditions, sql` and `),
    rows: rowsOf(sql`wanted`),
  })
}

/** Finds a request by its id, with one index probe, or by its Idempotency-Key, with two probes for each account. */
export async function findRequests(db: Database, id: string): Promise<ListedRequest[]> {
  return await db.execute<ListedRequest>(sql`
    with wanted as (
      select ${id}::uuid as id
      union
      select found.request_id from provider.accounts a cross join (values ('live'), ('sandbox')) as e (environment)
      cross join lateral (
        select ${i.request_id} from provider.idempotency_keys i
        where ${i.account_id} = ${a.id} and ${i.environment} = e.environment and ${i.key} = ${id}::uuid limit 1
      ) found
      limit ${rowsShown}::int
    )
    select * from (${rowsOf(sql`wanted`)}) page order by page.created_at desc, page.id desc`)
}

function rowsOf(wanted: SQL): SQL {
  return sql`
    select ${requestColumns}, left(${r.output} #>> '{images,0,url}', 2048) as thumbnail
    from ${wanted} w join provider.requests r on ${r.id} = w.id
    left join provider.api_keys k on ${k.id} = ${r.api_key_id}`
}
