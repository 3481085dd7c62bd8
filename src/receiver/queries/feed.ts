import postgres from 'postgres'
import { z } from 'zod'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { max, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { databaseErrorOf, isUnreadable, one } from '../../platform/postgres/errors.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import { feed } from '../domain/feed-schema.ts'
import { results } from '../domain/results-schema.ts'
import * as schema from '../domain/schema.ts'
import { isEmpty, matchingPage, maxScanned, wantedColumns, type FeedFilter } from '../feeding/feed-filter.ts'
import { readWithin } from './deadline.ts'
import { iso, isoAlways, maxPageBytes, maxStoredPageBytes } from './page.ts'
import { mediaSchema, type Media } from './request-detail.ts'
import { resultColumns, resultRowSchema, toResultRow, type StoredResult } from './results.ts'

const f = columnsOf(feed, 'f')
const m = columnsOf(schema.media, 'm')
const r = columnsOf(results, 'r')

export const feedStatusSchema = z.enum(['COMPLETED', 'FAILED', 'CANCELED'])

const positionSchema = z.int().meta({ description: 'Its place in the feed. Send it as `after` to read on.' })

const changeSchema = z
  .object({
    position: positionSchema,
    request_id: z.guid(),
    idempotency_key: z
      .guid()
      .nullable()
      .meta({ description: 'The Idempotency-Key, if the request was submitted through the receiver.' }),
    status: feedStatusSchema.meta({ description: 'The status after the change.' }),
    media_complete: z.boolean(),
    changed_at: z.iso.datetime(),
    result: resultRowSchema.nullable().meta({ description: 'The present row of `results`; null if it was removed.' }),
    media: z.array(mediaSchema).meta({ description: 'The present media of the request.' }),
  })
  .meta({ id: 'Change' })

const refusedSubmitSchema = z
  .object({
    position: positionSchema,
    request_id: z.null(),
    idempotency_key: z.guid(),
    status: z
      .literal('REFUSED')
      .meta({ description: 'A submit that was answered 202, and then refused by the provider or expired.' }),
    media_complete: z.boolean(),
    changed_at: z.iso.datetime(),
    error: z
      .object({ code: z.string(), message: z.string() })
      .nullable()
      .meta({ description: "The provider's error, or `submit_expired`; null if the submit was sent again since." }),
    metadata: z.unknown().meta({ description: "The submitter's metadata." }),
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
    next_after: z.int().meta({
      description:
        'Where to continue. A filtered page may be empty and still move on: it looks through at most 1,000 changes.',
    }),
    head: z.int().meta({ description: 'The position of the newest change of all.' }),
  })
  .meta({ id: 'FeedPage' })
export type FeedPage = z.infer<typeof feedPageSchema>
export type FeedItem = z.infer<typeof feedItemSchema>

/** The error for a position whose following changes are no longer kept. */
export class ExpiredPositionError extends Error {
  override name = 'ExpiredPositionError'
  code = 'position_expired' as const
}

const itemColumns = [
  'position',
  'request_id',
  'status',
  'media_complete',
  'changed_at',
  'idempotency_key',
  'error_code',
  'error_message',
  'metadata',
] as const

type FeedRow = RowOf<typeof feed, (typeof itemColumns)[number]> & {
  result: StoredResult | null
  media: Media[] | null
  matched: boolean
}

/** The size of caller-supplied columns as text, since they may be compressed on disk. */
const bytes = sql`(coalesce(octet_length(r.result::text), 0) + coalesce(octet_length(m.media::text), 0)
  + octet_length(concat(f.error_message, f.metadata)))`

export type FeedWanted = { after: number; limit: number; filter?: FeedFilter | undefined }

/**
 * Reads the changes after a position, oldest first, with the present rows of their requests. A page is shorter than
 * `limit` at the end of the feed, when it is full, and if a filter skipped the others. A change that cannot be written
 * as JSON gets a page of its own, with an error. Throws ExpiredPositionError and QueryTimeoutError.
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

/** The CTE `page`, with those that it needs. */
function pageOf({ after, limit, filter = {} }: FeedWanted): SQL {
  const following = sql`from mediadock.feed f where ${f.position} > (select mediadock.still_kept(${after}::bigint))
    order by ${f.position}`
  if (isEmpty(filter)) return sql`page as (select f.*, true as matched ${following} limit ${limit})`
  return sql`
    wanted as materialized (
      select * from jsonb_to_record(${JSON.stringify(filter)}::jsonb) as w (${sql.raw(wantedColumns)})
    ),
    scanned as materialized (select f.* ${following} limit ${maxScanned}),
    page as (select f.*, m.matched from scanned f cross join wanted w ${sql.raw(matchingPage)} limit ${limit})`
}

async function readChanges(db: Database, wanted: FeedWanted): Promise<FeedPage> {
  const { head, rows } = await readWithin(db, async (tx) => {
    const found = await tx.execute<FeedRow>(sql`
      with ${pageOf(wanted)},
      sized as (
        select f.*, sum(r.stored) over (order by ${f.position}) - r.stored as stored_before
        from page f
        left join lateral (
          select coalesce(pg_column_size(r.metadata), 0) + coalesce(pg_column_size(r.output), 0) as stored
          from mediadock.requests r where ${r.request_id} = ${f.request_id} and f.matched limit 1
        ) r on true
      ),
      weighed as (
        select f.*, r.result, m.media, sum(${bytes}) over (order by ${f.position}) - ${bytes} as bytes_before
        from sized f
        left join lateral (
          select to_jsonb(one) as result from (
            select ${resultColumns('r')} from mediadock.results r
            where ${r.request_id} = ${f.request_id} and f.matched limit 1) one
        ) r on true
        left join lateral (
          select jsonb_agg(jsonb_build_object(
              'kind', ${m.kind}, 'position', ${m.position}, 'url', ${m.url}, 'original_url', ${m.original_url},
              'width', ${m.width}, 'height', ${m.height}, 'duration_seconds', ${m.duration_seconds},
              'archived_url', ${m.archived_url}, 'bytes', ${m.bytes}, 'content_type', ${m.content_type},
              'sha256', ${m.sha256}, 'archived_at', ${m.archived_at}, 'archive_error', ${m.archive_error})
            order by ${m.kind}, ${m.position}) as media
          from mediadock.media m where ${m.request_id} = ${f.request_id} and f.matched
        ) m on true
        where coalesce(f.stored_before, 0) < ${maxStoredPageBytes}::int
      )
      select ${list(f, ...itemColumns)}, f.result, f.media, f.matched
      from weighed f where f.bytes_before < ${maxPageBytes}::int order by ${f.position}`)
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
      with ${pageOf({ ...wanted, limit: 1 })} select ${list(f, 'position', 'request_id')} from page f`),
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
  const common = { position: Number(row.position), media_complete, changed_at: isoAlways(row.changed_at) }
  if (status === 'REFUSED') {
    const { error_code: code, error_message: message, metadata } = row
    const error = code === null ? null : { code, message: message ?? '' }
    return {
      ...common,
      request_id: null,
      idempotency_key: idempotency_key ?? '',
      status,
      error,
      metadata,
      result: null,
      media: [],
    }
  }
  return {
    ...common,
    request_id: request_id ?? '',
    idempotency_key: result?.idempotency_key ?? null,
    status,
    result: result && toResultRow(result),
    media: (media ?? []).map((one) => ({ ...one, archived_at: iso(one.archived_at) })),
  }
}
