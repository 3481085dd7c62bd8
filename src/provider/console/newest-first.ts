import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql, type SQL, type StringChunk } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import * as schema from '../domain/schema.ts'

const accounts = columnsOf(schema.accounts)

/** The end of a page: microseconds since 1970 and the id of the last row. */
export type Cursor = { atUs: string; id: string }

/** `older` is the start of the next page; undefined after the last one. */
export type NewestPage<Row> = { rows: Row[]; older: Cursor | undefined; isAccountKnown: boolean }

export type NewestSearch = {
  account?: string | undefined
  before?: Cursor | undefined
  limit: number
  /** A table with id, account_id and created_at, as `t`, indexed by account and time. */
  table: SQL
  /** Names of the columns that `wanted` needs. */
  names: StringChunk | SQL
  /** The same columns, read from `t`. */
  columns: StringChunk | SQL
  /** A condition on `t` that the index serves. */
  bounds?: SQL
  /** The condition on a row of `looked`; undefined for all rows. */
  wanted: SQL | undefined
  /** The rows of a page, with id and created_at, from the ids in `wanted`. */
  rows: SQL
}

/** Rows that one page looks at for its filter. It sees the newest row of each account in any case. */
const lookedAt = 20_000
/**
 * At most this many accounts are searched for the filter of one page. A smaller number would search each account
 * deeper, but the page would end at a newer row.
 */
const lookedInto = 140

export const atUs = (instant: StringChunk | SQL) => sql`(extract(epoch from ${instant}) * 1000000)::bigint`

/**
 * Reads a page of rows of all accounts, newest first. It merges the latest rows of each account, which the index by
 * account has in order (with nulls last, or Postgres does not use it). It looks at a limited number of rows: at many of
 * the accounts with the newest rows, and at the newest row alone of the others. The newest row at which such a look
 * ended is the horizon. The page ends there, because beyond it rows were not looked at, and the next page
 * continues from there.
 */
export async function searchNewest<Row>(db: Database, search: NewestSearch): Promise<NewestPage<Row>> {
  const { account, before, limit, table, names, columns, bounds = sql``, wanted, rows: read } = search
  const mine = account === undefined ? sql`` : sql`where ${accounts.id} = ${account}`
  const counted = await db.execute<{ n: number }>(sql`select count(*)::int as n from provider.accounts ${mine}`)
  const { n: known } = one(counted, 'counting accounts')
  const busy = wanted ? Math.max(1, Math.min(known, lookedInto)) : limit + 1
  const depth = wanted ? Math.max(limit + 1, Math.floor((lookedAt - known) / busy)) : limit + 1
  const isOlder =
    before === undefined
      ? sql``
      : sql`and (t.created_at, t.id)
          < (timestamptz 'epoch' + ${before.atUs}::bigint * interval '1 microsecond', ${before.id}::uuid)`
  const latest = (of: SQL, count: number) => sql`
    select ${columns} from ${table} t where t.account_id = ${of} ${bounds} ${isOlder}
    order by t.created_at desc nulls last, t.id desc nulls last limit ${count}::int`
  const [found] = await db.execute<{
    rows: (Row & { id: string; at_us: string })[] | null
    horizon: Cursor | null
  }>(sql`
    with newest as (
      select l.*, row_number() over (order by l.created_at desc, l.id desc) as place
      from (select ${accounts.id} from provider.accounts ${mine}) a cross join lateral (${latest(sql`a.id`, 1)}) l
    ), looked as (
      select l.*, ${depth}::int as depth,
        row_number() over (partition by l.account_id order by l.created_at desc, l.id desc) as n
      from newest cross join lateral (${latest(sql`newest.account_id`, depth)}) l where newest.place <= ${busy}::int
      union all
      select ${names}, 1, 1 from newest where place > ${busy}::int
    ), horizon as (
      select created_at, id from looked where n = depth order by created_at desc, id desc limit 1
    ), wanted as (
      select looked.id from looked left join horizon h on true
      where (h.id is null or (looked.created_at, looked.id) >= (h.created_at, h.id)) and ${wanted ?? sql`true`}
      order by looked.created_at desc, looked.id desc limit ${limit + 1}::int
    )
    select (
        select jsonb_agg(to_jsonb(page) || jsonb_build_object('at_us', ${atUs(sql`page.created_at`)}::text)
          order by page.created_at desc, page.id desc)
        from (${read}) page
      ) as rows, (select jsonb_build_object('id', id, 'atUs', ${atUs(sql`created_at`)}::text) from horizon) as horizon`)
  const rows = found?.rows ?? []
  const last = rows.length > limit ? rows[limit - 1] : undefined
  return {
    rows: rows.slice(0, limit),
    older: last ? { atUs: last.at_us, id: last.id } : (found?.horizon ?? undefined),
    isAccountKnown: account === undefined || known > 0,
  }
}
