import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RequestStatus } from '../../wire/schemas.ts'
import type { Environment } from '../domain/schema.ts'
import * as schema from '../domain/schema.ts'
import { requestColumns, type RequestRow, withTimes } from './reads.ts'

const accounts = columnsOf(schema.accounts)
const a = columnsOf(schema.accounts, 'a')
const i = columnsOf(schema.idempotencyKeys, 'i')
const k = columnsOf(schema.apiKeys, 'k')
const requests = columnsOf(schema.requests)
const r = columnsOf(schema.requests, 'r')

/** `thumbnail` is the link of its first picture. */
export type ListedRequest = RequestRow & { thumbnail: string | null }

/** Where a page ends: microseconds since 1970, and the id of the last request that was looked at. */
export type RequestCursor = { atUs: string; id: string }

export type RequestFilter = {
  account?: string | undefined
  model?: string | undefined
  status?: RequestStatus | undefined
  environment?: Environment | undefined
  before?: RequestCursor | undefined
  limit: number
}

/** `older` is where the next page begins, if there may be one. */
export type RequestPage = { rows: ListedRequest[]; older: RequestCursor | undefined; isAccountKnown: boolean }

/** Requests that one page looks at in search of those that the filter wants; the newest of each account it sees in any case. */
const lookedAt = 20_000
/** Accounts that are looked into for a filter: the fewer, the deeper in each, and the sooner comes what was not looked at. */
const lookedInto = 140

const atUs = (instant: SQL) => sql`(extract(epoch from ${instant}) * 1000000)::bigint`

type PageRow = ListedRequest & { at_us: string }
/** What is looked at of each. */
const looked = ['id', 'account_id', 'created_at', 'model', 'status', 'environment'] as const
type Horizon = { at_us: string; id: string }

/**
 * Newest first. The latest of each account are merged, as the index by account
 * has them in order: with nulls last, or it is not used. Of accounts that were
 * not busy lately, where there are many, it is the newest one alone; of the
 * others as many as a filter may be looked for in. The page ends at the newest
 * of these ends (the horizon), so that none that is older is shown before one
 * that was not looked at, and the next page goes on from there.
 */
export async function searchRequests(db: Database, filter: RequestFilter): Promise<RequestPage> {
  const { account = null, model = null, status = null, environment = null, before, limit } = filter
  const mine = sql`(${account}::text is null or ${accounts.id} = ${account})`
  const counted = await db.execute<{ n: number }>(sql`select count(*)::int as n from provider.accounts where ${mine}`)
  const { n: known } = one(counted, 'counting accounts')
  const isFiltered = model !== null || status !== null || environment !== null
  // The newest of all are with the accounts whose own newest are the newest.
  const busy = isFiltered ? Math.max(1, Math.min(known, lookedInto)) : limit + 1
  const depth = isFiltered ? Math.max(limit + 1, Math.floor((lookedAt - known) / busy)) : limit + 1
  const from = sql`(timestamptz 'epoch' + ${before?.atUs ?? null}::bigint * interval '1 microsecond', ${before?.id ?? null}::uuid)`
  const older = (of: SQL, rows: number) => sql`
    select ${list(requests, ...looked)} from provider.requests
    where ${requests.account_id} = ${of} and (${before?.id ?? null}::uuid is null or (${requests.created_at}, ${requests.id}) < ${from})
    order by ${requests.created_at} desc nulls last, ${requests.id} desc nulls last limit ${rows}::int`
  const [found] = await db.execute<{ rows: PageRow[] | null; horizon: Horizon | null }>(sql`
    with newest as (
      select l.*, row_number() over (order by l.created_at desc, l.id desc) as place
      from (select ${accounts.id} from provider.accounts where ${mine}) a
      cross join lateral (${older(sql`a.id`, 1)}) l
    ), looked as (
      select l.*, ${depth}::int as depth, row_number() over (partition by l.account_id order by l.created_at desc, l.id desc) as n
      from newest cross join lateral (${older(sql`newest.account_id`, depth)}) l where newest.place <= ${busy}::int
      union all
      select ${list(requests, ...looked)}, 1, 1 from newest where place > ${busy}::int
    ), horizon as (
      select created_at, id from looked where n = depth order by created_at desc, id desc limit 1
    ), wanted as (
      select looked.id from looked left join horizon h on true
      where (h.id is null or (looked.created_at, looked.id) >= (h.created_at, h.id))
        and (${model}::text is null or looked.model = ${model}) and (${status}::text is null or looked.status = ${status})
        and (${environment}::text is null or looked.environment = ${environment})
      order by looked.created_at desc, looked.id desc limit ${limit + 1}::int
    )
    select (select jsonb_agg(page order by page.created_at desc, page.id desc) from (${rowsOf(sql`wanted`)}) page) as rows,
      (select jsonb_build_object('id', id, 'at_us', ${atUs(sql`created_at`)}::text) from horizon) as horizon`)
  const rows = found?.rows ?? []
  const last = rows.length > limit ? rows[limit - 1] : undefined
  const end = last ?? found?.horizon ?? undefined
  return {
    rows: rows.slice(0, limit).map(withTimes),
    older: end && { atUs: end.at_us, id: end.id },
    isAccountKnown: account === null || known > 0,
  }
}

/** By its id, or by the Idempotency-Key that an account submitted it with: each is one probe of an index. */
export async function findRequests(db: Database, id: string, limit: number): Promise<ListedRequest[]> {
  const rows = await db.execute<PageRow>(sql`
    with wanted as (
      select ${id}::uuid as id
      union
      select found.request_id from provider.accounts a cross join (values ('live'), ('sandbox')) as e (environment)
      cross join lateral (
        select ${i.request_id} from provider.idempotency_keys i
        where ${i.account_id} = ${a.id} and ${i.environment} = e.environment and ${i.key} = ${id}::uuid limit 1
      ) found
      limit ${limit}::int
    )
    select * from (${rowsOf(sql`wanted`)}) page order by page.created_at desc, page.id desc`)
  return rows.map(withTimes)
}

function rowsOf(wanted: SQL): SQL {
  return sql`
    select ${requestColumns}, left(${r.output} #>> '{images,0,url}', 2048) as thumbnail, ${atUs(sql`${r.created_at}`)}::text as at_us
    from ${wanted} w join provider.requests r on ${r.id} = w.id left join provider.api_keys k on ${k.id} = ${r.api_key_id}`
}
