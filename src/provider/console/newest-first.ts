import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'

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
