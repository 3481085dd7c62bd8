import { and, eq, lt, type SQL, sql, unionAll } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type { RequestStatus } from '../../wire/schemas.ts'
import { listedRows } from '../accounts/keys.ts'
import { type accounts, type Environment, ledgerEntries, type requests } from '../domain/schema.ts'
import { type DeliveryListing, listedColumns, type Standing, standing } from '../webhooks/delivery-history.ts'

/** The reads of the developer console. They change nothing. */

export type AccountRow = RowOf<typeof accounts, 'id' | 'available'> & {
  reserved: string
  unfinished: number
  keys: number
}

/**
 * Lists the newest accounts. Their reserved credits are the prices of live requests that have not ended, which the
 * indexes of the queue find.
 */
export async function listAccounts(db: Database): Promise<AccountRow[]> {
  return await db.execute<AccountRow>(sql`
    with unfinished as (
      select account_id, cost, environment from provider.requests where status = 'IN_QUEUE'
      union all
      select account_id, cost, environment from provider.requests where status = 'IN_PROGRESS'
    )
    select a.id, a.available, coalesce(u.reserved, 0) as reserved, coalesce(u.requests, 0)::int as unfinished,
      coalesce(k.keys, 0)::int as keys
    from provider.accounts a
    left join (select account_id, count(*) as keys from provider.api_keys
      where revoked_at is null group by account_id) k on k.account_id = a.id
    left join (
      select account_id, count(*) as requests, sum(cost) filter (where environment = 'live') as reserved
        from unfinished group by account_id
    ) u on u.account_id = a.id
    order by a.created_at desc, a.id limit ${listedRows}::int`)
}

const { id, book, kind, amount, request_id, created_at } = ledgerEntries
const entryColumns = { id, book, kind, amount, request_id, created_at }
export type EntryRow = Pick<typeof ledgerEntries.$inferSelect, keyof typeof entryColumns>

/** The ledger of one account, newest first. Without `nulls last`, Postgres would not use the index. */
export async function listEntries(
  db: Database,
  account: string,
  before: number | undefined,
  limit: number,
): Promise<EntryRow[]> {
  return db
    .select(entryColumns)
    .from(ledgerEntries)
    .where(
      and(
        eq(ledgerEntries.account_id, account),
        sql`(${book} = 'available' or (${book} = 'reserved' and ${kind} = 'settle'))`,
        before === undefined ? undefined : lt(id, before),
      ),
    )
    .orderBy(sql`${id} desc nulls last`)
    .limit(limit)
}

/**
 * The reservation of a request, and its settlement or refund. Two queries, because each can use the unique index that
 * allows one such entry per request.
 */
export async function listEntriesOf(db: Database, requestId: string): Promise<EntryRow[]> {
  const held = (condition: SQL) =>
    db
      .select(entryColumns)
      .from(ledgerEntries)
      .where(and(eq(request_id, requestId), sql`${book} = 'reserved'`, condition))
  return unionAll(held(sql`${kind} = 'reserve'`), held(sql`${kind} <> 'reserve'`)).orderBy(id)
}

export type RequestRow = RowOf<
  typeof requests,
  'id' | 'api_key_id' | 'environment' | 'model' | 'status' | 'progress' | 'cost' | 'attempts' | 'webhook_url'
> &
  RowOf<typeof requests, 'created_at' | 'completed_at'> & { account: string; key_name: string }

const requestColumns = sql`r.id, r.api_key_id, r.environment, r.model, r.status, r.progress, r.cost, r.attempts,
  r.webhook_url, r.created_at, r.completed_at, r.account_id as account, k.name as key_name`

export type RequestDetail = RequestRow &
  RowOf<typeof requests, 'logs' | 'error_code' | 'error_message'> & { input: string; output: string | null }

export async function readRequest(db: Database, id: string): Promise<RequestDetail | undefined> {
  const [row] = await db.execute<RequestDetail>(sql`
    select ${requestColumns}, r.input::text as input, r.output::text as output, r.logs, r.error_code, r.error_message
    from provider.requests r left join provider.api_keys k on k.id = r.api_key_id where r.id = ${id}`)
  return row
}

type RequestFilter = Pick<NewestSearch, 'account' | 'before'> & {
  model?: string | undefined
  status?: RequestStatus | undefined
  environment?: Environment | undefined
}

export async function searchRequests(
  db: Database,
  { model, status, environment, ...page }: RequestFilter,
): Promise<NewestPage<RequestRow>> {
  const conditions = Object.entries({ model, status, environment }).flatMap(([name, value]) =>
    value === undefined ? [] : [sql`${sql.identifier(name)} = ${value}`],
  )
  return searchNewest<RequestRow>(db, {
    ...page,
    table: sql`provider.requests`,
    columns: sql`id, created_at, model, status, environment`,
    wanted: conditions.length === 0 ? undefined : sql.join(conditions, sql` and `),
    rows: rowsOf(sql`wanted`),
  })
}

/** Finds a request by its id, with one index probe, or by its Idempotency-Key, with two probes for each account. */
export async function findRequests(db: Database, id: string): Promise<RequestRow[]> {
  return await db.execute<RequestRow>(sql`
    with wanted as (
      select ${id}::uuid as id
      union
      select found.request_id from provider.accounts a cross join (values ('live'), ('sandbox')) as e (environment)
      cross join lateral (
        select i.request_id from provider.idempotency_keys i
        where i.account_id = a.id and i.environment = e.environment and i.key = ${id}::uuid limit 1
      ) found
      limit ${rowsShown}::int
    )
    select * from (${rowsOf(sql`wanted`)}) page order by page.created_at desc, page.id desc`)
}

function rowsOf(wanted: SQL): SQL {
  return sql`
    select ${requestColumns}
    from ${wanted} w join provider.requests r on r.id = w.id
    left join provider.api_keys k on k.id = r.api_key_id`
}

type DeliveryFilter = Pick<NewestSearch, 'account' | 'before'> & { state?: Standing | undefined }

export async function searchDeliveries(
  db: Database,
  { state, ...page }: DeliveryFilter,
): Promise<NewestPage<DeliveryListing>> {
  return searchNewest<DeliveryListing>(db, {
    ...page,
    table: sql`provider.deliveries d`,
    columns: sql`id, created_at, ${standing} as standing`,
    wanted: state && sql`standing = ${state}`,
    rows: sql`select ${listedColumns} from wanted w join provider.deliveries d on d.id = w.id`,
  })
}

/** Finds deliveries by delivery id or request id, each with one probe of an index. */
export async function findDeliveries(db: Database, id: string): Promise<DeliveryListing[]> {
  return await db.execute<DeliveryListing>(sql`
    with wanted as (
      select d.id from provider.deliveries d where d.id = ${id}::uuid
      union
      (select d.id from provider.deliveries d where d.request_id = ${id}::uuid limit ${rowsShown}::int)
    )
    select ${listedColumns} from wanted w join provider.deliveries d on d.id = w.id
    order by d.created_at desc, d.id desc`)
}

/** `older` is the start of the next page, as cursorSchema reads it; undefined on the last one. */
export type NewestPage<Row> = { rows: Row[]; older: string | undefined }

/** A page of a list: about two screens. */
export const rowsShown = 50

export type NewestSearch = {
  account?: string | undefined
  /** The end of the previous page: microseconds since 1970 and the id of its last row. */
  before?: { atUs: string; id: string } | undefined
  /** A table with id, account_id and created_at, indexed by time and by account and time. */
  table: SQL
  /** The columns that `wanted` needs, with id and created_at. */
  columns: SQL
  /** The condition on a row of `looked`; undefined for all rows. */
  wanted: SQL | undefined
  /** The rows of a page, with id and created_at, from the ids in `wanted`. */
  rows: SQL
}

/**
 * The rows that one page searches for matches (docs/provider.md), so that a page of rare matches is quick too. The next
 * page continues the search.
 */
const searchedRows = 20_000

const placeOf = (row: SQL) => sql`(extract(epoch from ${row}.created_at) * 1000000)::bigint || '_' || ${row}.id`

/**
 * Reads a page of rows, newest first. With a filter, it searches a limited number of rows. A page with too few matches
 * ends at the last of them, and the next page continues there. Without `nulls last`, Postgres would not use the index.
 */
export async function searchNewest<Row>(db: Database, search: NewestSearch): Promise<NewestPage<Row>> {
  const { account, before, table, columns, wanted, rows: read } = search
  const depth = wanted ? searchedRows : rowsShown + 1
  const isMine = account === undefined ? sql`` : sql`and account_id = ${account}`
  const isOlder =
    before === undefined
      ? sql``
      : sql`and (created_at, id)
          < (timestamptz 'epoch' + ${before.atUs}::bigint * interval '1 microsecond', ${before.id}::uuid)`
  type Found = { rows: (Row & { place: string })[] | null; horizon: string | null }
  const found = await db.execute<Found>(sql`
    with looked as (
      select ${columns} from ${table} where true ${isMine} ${isOlder}
      order by created_at desc nulls last, id desc nulls last limit ${depth}::int
    ), wanted as (
      select id from looked where ${wanted ?? sql`true`} order by created_at desc, id desc limit ${rowsShown + 1}::int
    )
    select (
        select jsonb_agg(to_jsonb(page) || jsonb_build_object('place', ${placeOf(sql`page`)})
          order by page.created_at desc, page.id desc)
        from (${read}) page
      ) as rows, (
        select ${placeOf(sql`looked`)} from looked order by created_at desc, id desc offset ${depth - 1}::int
      ) as horizon`)
  const { rows: all, horizon } = one(found, 'reading a page')
  const rows = all ?? []
  const last = rows.length > rowsShown ? rows[rowsShown - 1] : undefined
  return { rows: rows.slice(0, rowsShown), older: last?.place ?? horizon ?? undefined }
}
