import postgres from 'postgres'
import { z } from 'zod'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { getViewSelectedFields, max, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { databaseErrorOf, isUnreadable, one } from '../../platform/postgres/errors.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { ColumnName, RowOf } from '../../platform/postgres/rows.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import { feed } from '../domain/feed-schema.ts'
import { results } from '../domain/results-schema.ts'
import type { FeedFilter } from '../feeding/feed-filter.ts'
import { feedWalk } from '../feeding/feed-walk.ts'
import { readWithin } from './deadline.ts'
import { withIso } from './page.ts'
import { mediaSchema, type Media } from './request-detail.ts'
import { resultRowSchema, toResultRow, type StoredResult } from './results.ts'

const f = columnsOf(feed, 'f')

const positionSchema = z.int().describe('Its place in the feed. Send it as `after` to read on.')

const changeSchema = z
  .object({
    position: positionSchema,
    request_id: z.guid(),
    idempotency_key: resultRowSchema.shape.idempotency_key,
    status: z.enum(['COMPLETED', 'FAILED', 'CANCELED']).describe('The status after the change.'),
    media_complete: z.boolean(),
    changed_at: z.iso.datetime(),
    result: resultRowSchema.nullable().describe('The present row of `results`; null if it was removed.'),
    media: z.array(mediaSchema).describe('The present media of the request.'),
  })
  .meta({ id: 'Change' })

const refusedSubmitSchema = z
  .object({
    position: positionSchema,
    request_id: z.null(),
    idempotency_key: z.guid(),
    status: z.literal('REFUSED').describe('A submit that was refused or expired after its 202.'),
    media_complete: z.boolean(),
    changed_at: z.iso.datetime(),
    error: z.object({ code: z.string(), message: z.string() }).nullable().describe('Null if it was sent again since.'),
    metadata: z.unknown().describe("The submitter's metadata."),
    result: z.null(),
    media: z.array(mediaSchema).max(0),
  })
  .meta({ id: 'RefusedSubmit' })

/** Stands in for a change that cannot be written as JSON, so that the feed continues. */
const unreadableChangeSchema = z
  .object({
    position: positionSchema,
    request_id: z.guid().nullable(),
    error: z.object({ code: z.literal('unreadable'), message: z.string() }),
  })
  .meta({
    id: 'UnreadableChange',
    description: 'Stands in for a change that cannot be written as JSON. It has no status.',
  })

export const feedItemSchema = z.union([changeSchema, refusedSubmitSchema, unreadableChangeSchema])

export const feedPageSchema = z
  .object({
    data: z.array(feedItemSchema),
    next_after: z.int().describe('Where to continue. A filtered page may be empty and still move on.'),
    head: z.int().describe('The position of the newest change in the whole feed.'),
  })
  .meta({ id: 'FeedPage' })
export type FeedPage = z.infer<typeof feedPageSchema>
export type FeedItem = z.infer<typeof feedItemSchema>

/** The error for a position whose following changes are no longer kept. */
export class ExpiredPositionError extends Error {
  override name = 'ExpiredPositionError'
  code = 'position_expired' as const
}

type FeedRow = RowOf<typeof feed, ColumnName<typeof feed>> & {
  result: StoredResult | null
  media: Media[] | null
  matched: boolean
}

export type FeedWanted = { after: number; limit: number; filter?: FeedFilter | undefined }

/**
 * Reads the changes after a position, oldest first, with the present rows of their requests. A page is shorter than
 * `limit` at the end of the feed, at its limit of bytes or time, and if a filter skipped the others. A change that
 * cannot be written as JSON gets a page alone, with an error. Throws ExpiredPositionError and QueryTimeoutError.
 */
export async function readFeed(db: Database, { limit, ...wanted }: FeedWanted): Promise<FeedPage> {
  try {
    return await readChanges(db, { limit, ...wanted })
  } catch (error) {
    if (!isUnreadable(error)) throw error
    return limit > 1
      ? readFeed(db, { limit: Math.ceil(limit / 2), ...wanted })
      : readUnreadable(db, { limit, ...wanted }, failureWords(error))
  }
}

/** SQL: all columns of the view under the alias of feedWalk(). */
const resultColumns = Object.keys(getViewSelectedFields(results))
  .map((name) => `r.${name}`)
  .join(', ')

/** The CTE `walked`, with those that it needs. */
function walkOf({ after, limit, filter = {} }: FeedWanted, isRead = true): SQL {
  return sql`asked as (
    select ${after}::bigint as after, ${limit}::int as most, ${JSON.stringify(filter)}::text::jsonb as filter
  ), ${sql.raw(feedWalk(resultColumns, isRead))}`
}

async function readChanges(db: Database, wanted: FeedWanted): Promise<FeedPage> {
  const { head, rows } = await readWithin(db, async (tx) => {
    const found = await tx.execute<FeedRow>(sql`
      with recursive ${walkOf(wanted)}
      select f.*, p.result, p.media, p.matched
      from walked p join mediadock.feed f on ${f.position} = p.position
      where p.steps > 0 and (p.matched or p.position = (select max(position) from walked))
      order by ${f.position}`)
    return { rows: found, head: await headIn(tx) }
  }).catch((error: unknown) => {
    throw expired(error) ?? error
  })
  const data = rows.filter(({ matched }) => matched).map(toItem)
  // Throws here for an item that could not be sent to a reader.
  JSON.stringify(data)
  return { data, next_after: Number(rows.at(-1)?.position ?? wanted.after), head }
}

async function readUnreadable(db: Database, wanted: FeedWanted, words: string): Promise<FeedPage> {
  const rows = await readWithin(db, async (tx) =>
    tx.execute<RowOf<typeof feed, 'position' | 'request_id'>>(sql`
      with recursive ${walkOf({ ...wanted, limit: 1 }, false)}
      select ${list(f, 'position', 'request_id')} from walked p join mediadock.feed f on ${f.position} = p.position
      where p.steps > 0 order by ${f.position} desc limit 1`),
  )
  const place = one(rows, 'reading the place of a change')
  const position = Number(place.position)
  const message = `the row cannot be written as JSON (${words}): read its columns one by one in mediadock.results`
  return {
    data: [{ position, request_id: place.request_id, error: { code: 'unreadable', message } }],
    next_after: position,
    head: await headOf(db),
  }
}

/** Returns the position of the newest change; 0 for an empty feed. */
export async function headOf(db: Database): Promise<number> {
  return readWithin(db, headIn)
}

async function headIn(tx: Executor): Promise<number> {
  const rows = await tx.select({ head: max(feed.position) }).from(feed)
  return one(rows, 'reading the head of the feed').head ?? 0
}

function expired(error: unknown): ExpiredPositionError | undefined {
  const cause = databaseErrorOf(error)
  if (!(cause instanceof postgres.PostgresError) || cause.code !== 'MD002') return undefined
  return new ExpiredPositionError(`${cause.message}. ${cause.hint}`, { cause: error })
}

function toItem({ status, request_id, idempotency_key, media_complete, result, media, ...row }: FeedRow): FeedItem {
  const common = { position: Number(row.position), media_complete, changed_at: new Date(row.changed_at).toISOString() }
  if (status === 'REFUSED') {
    const { error_code: code, error_message: message, metadata } = row
    const error = code === null ? null : { code, message: message ?? '' }
    const ofSubmit = { request_id: null, idempotency_key: idempotency_key ?? '', result: null, media: [] }
    return { ...common, ...ofSubmit, status, error, metadata }
  }
  return {
    ...common,
    request_id: request_id ?? '',
    idempotency_key: result?.idempotency_key ?? null,
    status,
    result: result && toResultRow(result),
    media: (media ?? []).map((one) => withIso(one, 'archived_at')),
  }
}
