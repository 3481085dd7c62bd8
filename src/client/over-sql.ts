import { setTimeout as delay } from 'node:timers/promises'
import { withDeadline } from '../platform/deadline.ts'
import type { FeedFilter } from '../receiver/feeding/feed-filter.ts'
import { feedWalk } from '../receiver/feeding/feed-walk.ts'
import type { ChangePage, ReadPage } from './change.ts'
import { ReadError } from './change.ts'

/** A client of postgres.js, or a Pool or Client of pg. */
export type SqlDriver =
  | { unsafe: (text: string, params: (number | string)[]) => PromiseLike<readonly object[]> }
  | { query: (text: string, params: (number | string)[]) => PromiseLike<{ rows: readonly object[] }> }

const ctes = (isRead: boolean) => `
  with recursive asked as (select $1::bigint as after, $2::int as most, $3::text::jsonb as filter),
  ${feedWalk('r.*', isRead)},
  head as (select coalesce(max(position), 0) as head, (select max(position) from walked) as last from mediadock.feed)`

/** Reads a page of changes with rows of `results` and `media` (docs/feed.md). Bounded in rows, bytes and time. */
const statement = `${ctes(true)}
  select jsonb_build_object('head', head, 'next_after', last, 'data', coalesce((
    select jsonb_agg(jsonb_build_object('position', f.position, 'request_id', f.request_id,
        'idempotency_key', coalesce(f.idempotency_key::text, p.result ->> 'idempotency_key'), 'status', f.status,
        'media_complete', f.media_complete, 'changed_at', f.changed_at, 'result', p.result,
        'media', coalesce(p.media, '[]')) || case when f.status = 'REFUSED' then jsonb_build_object(
        'metadata', f.metadata, 'error', case when f.error_code is not null
          then jsonb_build_object('code', f.error_code, 'message', f.error_message) end) else '{}' end
        order by f.position)
    from walked p join mediadock.feed f on f.position = p.position where p.matched), '[]'))::text as page
  from head`

/** Reads only the position of the first change, whose row cannot be serialised. */
const unreadable = `${ctes(false)}
  select jsonb_build_object('head', head, 'next_after', last, 'data', coalesce((
    select jsonb_agg(jsonb_build_object('position', f.position, 'request_id', f.request_id))
    from walked p join mediadock.feed f on f.position = p.position where p.matched), '[]'))::text as page
  from head`

/** Reads `mediadock.feed` with the caller's driver. */
export function overSql(driver: SqlDriver, filter: FeedFilter = {}): ReadPage {
  return async (after, signal) => {
    // Neither driver cancels a statement when the server is frozen.
    const page = await withDeadline(read(driver, { after, filter }), 15_000, 'reading mediadock.feed')
    if (page.next_after === after) await delay(100, undefined, { signal })
    return page
  }
}

type Reading = { after: number; filter: FeedFilter }

/** Reads a page. If a row cannot be serialised, halves the page until that row is alone, and returns its error. */
async function read(driver: SqlDriver, { after, filter }: Reading, rows = 100): Promise<ChangePage> {
  try {
    return await queryPage(driver, statement, [after, rows, JSON.stringify(filter)])
  } catch (error) {
    const refusal = refusalOf(error, after)
    if (refusal !== undefined || !isUnreadable(error)) throw refusal ?? error
    if (rows > 1) return read(driver, { after, filter }, Math.ceil(rows / 2))
    const page = await queryPage(driver, unreadable, [after, 1, JSON.stringify(filter)])
    const cause = error instanceof Error ? error.message : String(error)
    const message = `the row cannot be written as JSON (${cause}): read its columns one by one in mediadock.results`
    const failure = { code: 'unreadable', message } as const
    return { ...page, data: page.data.map(({ position, request_id }) => ({ position, request_id, error: failure })) }
  }
}

const otherShape =
  'the driver returned no row as an object: pass a client of postgres.js, or a Pool or Client of pg, without row options'

async function queryPage(driver: SqlDriver, text: string, params: (number | string)[]): Promise<ChangePage> {
  const rows = 'unsafe' in driver ? await driver.unsafe(text, params) : (await driver.query(text, params)).rows
  const [row] = rows
  if (row === undefined || !('page' in row)) throw new Error(otherShape)
  return JSON.parse(String(row.page))
}

/** True if a row exceeds a limit of Postgres (SQLSTATE 54 or XX) or of JavaScript. */
function isUnreadable(error: unknown): boolean {
  if (error instanceof SyntaxError || error instanceof RangeError) return true
  return error instanceof Error && 'code' in error && /^(?:54|XX)/.test(String(error.code))
}

/** Returns the refusal: MD002 (no longer kept), 42 (a table or right is missing) or 22 (not a position). */
function refusalOf(error: unknown, after: number): ReadError | undefined {
  const code = error instanceof Error && 'code' in error ? String(error.code) : ''
  if (!/^(?:MD002$|42|22)/.test(code) || !(error instanceof Error)) return undefined
  const message = `reading mediadock.feed after ${after}: ${error.message}`
  return new ReadError(code === 'MD002' ? 'position_expired' : code, message, { cause: error })
}
