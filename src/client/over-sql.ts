import { setTimeout as delay } from 'node:timers/promises'
import { withDeadline } from '../platform/deadline.ts'
import { isEmpty, matchingPage, maxScanned, wantedColumns, type FeedFilter } from '../receiver/feeding/feed-filter.ts'
import type { ChangePage, ChangeSource } from './change.ts'
import { ReadError } from './change.ts'

/** A client of postgres.js, or a Pool or Client of pg. */
export type SqlDriver =
  | { unsafe: (text: string, params: (number | string)[]) => PromiseLike<readonly object[]> }
  | { query: (text: string, params: (number | string)[]) => PromiseLike<{ rows: readonly object[] }> }

const pageRows = 100
/** The most media of a result. The limit in the statement gives Postgres a good estimate without statistics. */
const maxMedia = 100
const pageBytes = 2 * 1024 * 1024
const pauseMs = 100
/** Neither driver cancels a statement when the server is frozen. */
const statementMs = 15_000

const following = 'from mediadock.feed f where position > (select mediadock.still_kept($1)) order by position'

/** The CTE `page`. A filter is the fourth parameter, as JSON text. */
const pageOf = (isFiltered: boolean) =>
  isFiltered
    ? `wanted as materialized (select * from jsonb_to_record($4::text::jsonb) as w (${wantedColumns})),
  scanned as materialized (select f.* ${following} limit ${maxScanned}),
  page as (select f.*, m.matched from scanned f cross join wanted w ${matchingPage} limit $2)`
    : `page as (select f.*, true as matched ${following} limit $2)`

/** Reads a page of changes with rows of `results` and `media` (docs/feed.md). Bounded in rows and bytes. */
const statement = (isFiltered: boolean) => `
  with ${pageOf(isFiltered)},
  weighed as (
    select f.*, r.result, coalesce(m.media, '[]') as media,
      sum(octet_length(concat(r.result, m.media, f.error_message, f.metadata))) over (order by f.position)
        - octet_length(concat(r.result, m.media, f.error_message, f.metadata)) as bytes_before
    from page f
    left join lateral (select to_jsonb(one) as result from (
      select * from mediadock.results where request_id = f.request_id and f.matched limit 1) one) r on true
    left join lateral (
      select jsonb_agg(to_jsonb(item) - 'request_id' order by kind, position) as media
      from (
        select * from mediadock.media where request_id = f.request_id and f.matched
        order by kind, position limit ${maxMedia}) item
    ) m on true
  ),
  head as (select coalesce(max(position), 0) as head from mediadock.feed)
  select jsonb_build_object('head', head,
    'next_after', (select max(position) from weighed where bytes_before < $3), 'data', coalesce((
    select jsonb_agg(jsonb_build_object('position', position, 'request_id', request_id,
        'idempotency_key', coalesce(idempotency_key::text, result ->> 'idempotency_key'), 'status', status,
        'media_complete', media_complete, 'changed_at', changed_at, 'result', result, 'media', media) || refused
        order by position)
    from weighed w cross join lateral (
      select case when status = 'REFUSED' then jsonb_build_object('metadata', metadata, 'error', case
        when error_code is not null then jsonb_build_object('code', error_code, 'message', error_message) end)
        else '{}' end as refused
    ) s
    where bytes_before < $3 and matched), '[]'))::text as page
  from head`

/** Reads only the position of the first change, whose row cannot be serialised. */
const unreadable = (isFiltered: boolean) => `
  with ${pageOf(isFiltered)},
  head as (select coalesce(max(position), 0) as head from mediadock.feed),
  first as (select position, request_id from page where $3 > 0)
  select jsonb_build_object('head', head, 'next_after', (select max(position) from first),
    'data', coalesce((select jsonb_agg(to_jsonb(first)) from first), '[]'))::text as page from head`

/** Reads `mediadock.feed` with the caller's driver. */
export function overSql(driver: SqlDriver, filter: FeedFilter = {}): ChangeSource {
  return async (after, signal) => {
    const page = await withDeadline(read(driver, { after, filter }), statementMs, 'reading mediadock.feed')
    const nextAfter = page.next_after ?? after
    if (nextAfter === after) await delay(pauseMs, undefined, { signal })
    return { ...page, next_after: nextAfter }
  }
}

type Reading = { after: number; filter: FeedFilter }

/** Reads a page. If a row cannot be serialised, halves the page until that row is alone, and returns its error. */
async function read(driver: SqlDriver, { after, filter }: Reading, rows = pageRows): Promise<Page> {
  const isFiltered = !isEmpty(filter)
  const paramsFor = (limit: number) => [after, limit, pageBytes, ...(isFiltered ? [JSON.stringify(filter)] : [])]
  try {
    return await ask(driver, statement(isFiltered), paramsFor(rows))
  } catch (error) {
    const refusal = refusalOf(error, after)
    if (refusal !== undefined || !isUnreadable(error)) throw refusal ?? error
    if (rows > 1) return read(driver, { after, filter }, Math.ceil(rows / 2))
    const page = await ask(driver, unreadable(isFiltered), paramsFor(1))
    const cause = error instanceof Error ? error.message : String(error)
    const message = `the row cannot be written as JSON (${cause}): read its columns one by one in mediadock.results`
    return {
      ...page,
      data: page.data.map(({ position, request_id }) => ({
        position,
        request_id,
        error: { code: 'unreadable', message },
      })),
    }
  }
}

/** `next_after` is null on an empty page. */
type Page = Omit<ChangePage, 'next_after'> & { next_after: number | null }

async function ask(driver: SqlDriver, text: string, params: (number | string)[]): Promise<Page> {
  const rows = 'unsafe' in driver ? await driver.unsafe(text, params) : (await driver.query(text, params)).rows
  const [row] = rows
  if (row === undefined || !('page' in row)) throw new Error('Postgres returned no row for mediadock.feed')
  return JSON.parse(String(row.page))
}

/** Beyond a limit of Postgres (54), or of its memory for one value (XX); or no text that JavaScript takes. */
function isUnreadable(error: unknown): boolean {
  if (error instanceof SyntaxError || error instanceof RangeError) return true
  return error instanceof Error && 'code' in error && /^(?:54|XX)/.test(String(error.code))
}

/** MD002: no longer kept; 42: a table or a right that is missing; 22: no position. */
function refusalOf(error: unknown, after: number): ReadError | undefined {
  const code = error instanceof Error && 'code' in error ? String(error.code) : ''
  if (!/^(?:MD002$|42|22)/.test(code) || !(error instanceof Error)) return undefined
  return new ReadError(
    code === 'MD002' ? 'position_expired' : code,
    `reading mediadock.feed after ${after}: ${error.message}`,
    {
      cause: error,
    },
  )
}
