import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import * as schema from '../domain/schema.ts'
import {
  type DeliveryListing,
  type DeliveryRow,
  listedColumns,
  type Standing,
  standing,
  toListing,
} from './delivery-history.ts'

const accounts = columnsOf(schema.accounts)
const d = columnsOf(schema.deliveries, 'd')
const requests = columnsOf(schema.requests)

/** Where a page ends: microseconds since 1970, and the id of the last delivery that was looked at. */
export type DeliveryCursor = { atUs: string; id: string }

export type DeliveryFilter = {
  account?: string | undefined
  standing?: Standing | undefined
  /** Of the request; a test has none. */
  model?: string | undefined
  /** Made from then on, and before. */
  since?: Date | undefined
  until?: Date | undefined
  before?: DeliveryCursor | undefined
  limit: number
}

/** `older` is where the next page begins, if there may be one. */
export type DeliveryPage = { rows: DeliveryListing[]; older: DeliveryCursor | undefined; isAccountKnown: boolean }

/** Deliveries that one page looks at in search of those that the filter wants; the newest of each account it sees in any case. */
const lookedAt = 20_000
/** Accounts that are looked into for a filter, as in the list of requests (request-search.ts). */
const lookedInto = 140

const atUs = (instant: SQL) => sql`(extract(epoch from ${instant}) * 1000000)::bigint`

type PageRow = DeliveryRow & { at_us: string }
type Horizon = { at_us: string; id: string }

/**
 * Newest first, searched as the list of requests is (request-search.ts): of the
 * accounts whose newest are the newest so many are looked at, of the others the
 * newest alone. A page that did not look at all ends at the newest of these ends,
 * its horizon, and the next goes on from there.
 */
export async function searchDeliveries(db: Database, filter: DeliveryFilter): Promise<DeliveryPage> {
  const { account, standing: wanted, model, limit } = filter
  const mine = account === undefined ? sql`` : sql`where ${accounts.id} = ${account}`
  const counted = await db.execute<{ n: number }>(sql`select count(*)::int as n from provider.accounts ${mine}`)
  const { n: known } = one(counted, 'counting accounts')
  const isFiltered = wanted !== undefined || model !== undefined
  const busy = isFiltered ? Math.max(1, Math.min(known, lookedInto)) : limit + 1
  const depth = isFiltered ? Math.max(limit + 1, Math.floor((lookedAt - known) / busy)) : limit + 1
  const columns = sql`${list(d, 'id', 'account_id', 'request_id', 'created_at')}, ${standing} as standing`
  const latest = (of: SQL, rows: number) => sql`
    select ${columns} from provider.deliveries d where ${d.account_id} = ${of} ${within(filter)}
    order by ${d.created_at} desc nulls last, ${d.id} desc nulls last limit ${rows}::int`
  const ofModel = sql`cross join lateral (
    select 1 from (select ${requests.model} from provider.requests where ${requests.id} = looked.request_id limit 1) r where r.model = ${model ?? null}
  ) m`
  const [found] = await db.execute<{ rows: PageRow[] | null; horizon: Horizon | null }>(sql`
    with newest as (
      select l.*, row_number() over (order by l.created_at desc, l.id desc) as place
      from (select ${accounts.id} from provider.accounts ${mine}) a cross join lateral (${latest(sql`a.id`, 1)}) l
    ), looked as (
      select l.*, ${depth}::int as depth, row_number() over (partition by l.account_id order by l.created_at desc, l.id desc) as n
      from newest cross join lateral (${latest(sql`newest.account_id`, depth)}) l where newest.place <= ${busy}::int
      union all
      select id, account_id, request_id, created_at, standing, 1, 1 from newest where place > ${busy}::int
    ), horizon as (
      select created_at, id from looked where n = depth order by created_at desc, id desc limit 1
    ), wanted as (
      select looked.id from looked left join horizon h on true ${model === undefined ? sql`` : ofModel}
      where (h.id is null or (looked.created_at, looked.id) >= (h.created_at, h.id))
        ${wanted === undefined ? sql`` : sql`and looked.standing = ${wanted}`}
      order by looked.created_at desc, looked.id desc limit ${limit + 1}::int
    )
    select (select jsonb_agg(page order by page.created_at desc, page.id desc) from (
        select ${listedColumns}, ${atUs(sql`${d.created_at}`)}::text as at_us
        from wanted w join provider.deliveries d on ${d.id} = w.id
      ) page) as rows,
      (select jsonb_build_object('id', id, 'at_us', ${atUs(sql`created_at`)}::text) from horizon) as horizon`)
  const rows = found?.rows ?? []
  const last = rows.length > limit ? rows[limit - 1] : undefined
  const end = last ?? found?.horizon ?? undefined
  return {
    rows: rows.slice(0, limit).map(toListing),
    older: end && { atUs: end.at_us, id: end.id },
    isAccountKnown: account === undefined || known > 0,
  }
}

/** The bounds of its time, and where the page before it ended. */
function within({ since, until, before }: DeliveryFilter): SQL {
  const bounds = [
    since && sql`and ${d.created_at} >= ${since.toISOString()}::timestamptz`,
    until && sql`and ${d.created_at} < ${until.toISOString()}::timestamptz`,
    before &&
      sql`and (${d.created_at}, ${d.id}) < (timestamptz 'epoch' + ${before.atUs}::bigint * interval '1 microsecond', ${before.id}::uuid)`,
  ]
  return sql.join(
    bounds.filter((bound) => bound !== undefined),
    sql` `,
  )
}

/** By its own id, or by that of its request: each is one probe of an index. */
export async function findDeliveries(db: Database, id: string, limit: number): Promise<DeliveryListing[]> {
  const rows = await db.execute<DeliveryRow>(sql`
    with wanted as (
      select ${d.id} from provider.deliveries d where ${d.id} = ${id}::uuid
      union
      (select ${d.id} from provider.deliveries d where ${d.request_id} = ${id}::uuid limit ${limit}::int)
    )
    select ${listedColumns} from wanted w join provider.deliveries d on ${d.id} = w.id order by ${d.created_at} desc, ${d.id} desc`)
  return rows.map(toListing)
}
