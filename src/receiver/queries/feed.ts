import postgres from 'postgres'
import { z } from 'zod'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { gt, max, sql } from '../../platform/postgres/drizzle.ts'
import { databaseErrorOf, isUnreadable, one } from '../../platform/postgres/errors.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import { feed } from '../domain/feed-schema.ts'
import * as schema from '../domain/schema.ts'
import { readWithin } from './deadline.ts'
import { iso, isoAlways, maxPageBytes } from './page.ts'
import { mediaSchema, type Media } from './request-detail.ts'
import { resultColumns, resultRowSchema, toResultRow, type StoredResult } from './results.ts'

const f = columnsOf(feed, 'f')
const m = columnsOf(schema.media, 'm')
const r = columnsOf(schema.results, 'r')

export const feedStatusSchema = z.enum(['COMPLETED', 'FAILED', 'CANCELED'])

const positionSchema = z.int().meta({ description: 'Its place in the feed; asks, as `after`, for what comes next.' })

const changeSchema = z
  .object({
    position: positionSchema,
    request_id: z.guid(),
    idempotency_key: z.guid().nullable().meta({ description: 'Of the submit, where it came through us.' }),
    status: feedStatusSchema.meta({ description: 'What the change came to.' }),
    media_complete: z.boolean(),
    changed_at: z.iso.datetime(),
    result: resultRowSchema
      .nullable()
      .meta({ description: 'The row of `results` as it is now; null where somebody has removed it.' }),
    media: z.array(mediaSchema).meta({ description: 'Its media as they are now.' }),
  })
  .meta({ id: 'Change' })

const refusedSubmitSchema = z
  .object({
    position: positionSchema,
    request_id: z.null(),
    idempotency_key: z.guid(),
    status: z
      .literal('REFUSED')
      .meta({ description: 'A submit that was answered 202, and then refused by the provider or given up.' }),
    media_complete: z.boolean(),
    changed_at: z.iso.datetime(),
    error: z
      .object({ code: z.string(), message: z.string() })
      .nullable()
      .meta({ description: "The provider's, or `submit_expired`; null where the submit was sent again since." }),
    metadata: z.unknown().meta({ description: "The submitter's own." }),
    result: z.null(),
    media: z.array(mediaSchema).max(0),
  })
  .meta({ id: 'RefusedSubmit' })

/** In the place of a change that cannot be written out: nothing stops the feed. */
const unreadableChangeSchema = z
  .object({
    position: positionSchema,
    request_id: z.guid().nullable(),
    error: z.object({ code: z.literal('unreadable'), message: z.string() }),
  })
  .meta({
    id: 'UnreadableChange',
    description: 'In the place of a change that cannot be written out: it has no status.',
  })

export const feedItemSchema = z.union([changeSchema, refusedSubmitSchema, unreadableChangeSchema])

export const feedPageSchema = z
  .object({
    data: z.array(feedItemSchema),
    next_after: z
      .int()
      .meta({ description: 'Where to go on: the position of the last item, or what was given where there is none.' }),
    head: z.int().meta({ description: 'The position of the newest change of all.' }),
  })
  .meta({ id: 'FeedPage' })
export type FeedPage = z.infer<typeof feedPageSchema>
export type FeedItem = z.infer<typeof feedItemSchema>

/** Changes after a position are no longer kept. */
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
}

/** What others put into a row. As text: on disk it is compressed. */
const bytes = sql`(coalesce(octet_length(r.result::text), 0) + coalesce(octet_length(m.media::text), 0)
  + octet_length(concat(f.error_message, f.metadata)))`

type Wanted = { after: number; limit: number }

/**
 * Reads the changes after a position, oldest first, with what became of their requests; fewer than `limit`
 * where there are no more, where no more fit into a page, or where one of them cannot be written out: it stands
 * alone on a page then, with its error. Throws ExpiredPositionError.
 */
export async function readFeed(db: Database, { after, limit }: Wanted): Promise<FeedPage> {
  try {
    return await readChanges(db, { after, limit })
  } catch (error) {
    if (!isUnreadable(error)) throw error
    return limit > 1
      ? readFeed(db, { after, limit: Math.ceil(limit / 2) })
      : readUnreadable(db, after, failureWords(error))
  }
}

async function readChanges(db: Database, { after, limit }: Wanted): Promise<FeedPage> {
  const { head, rows } = await readWithin(db, async (tx) => {
    const found = await tx.execute<FeedRow>(sql`
      with page as (
        select f.* from mediadock.feed f where ${f.position} > (select mediadock.still_kept(${after}::bigint))
        order by ${f.position} limit ${limit}
      ),
      weighed as (
        select f.*, r.result, m.media, sum(${bytes}) over (order by ${f.position}) - ${bytes} as bytes_before
        from page f
        left join lateral (
          select to_jsonb(one) as result from (
            select ${resultColumns('r')} from mediadock.results r where ${r.request_id} = ${f.request_id} limit 1) one
        ) r on true
        left join lateral (
          select jsonb_agg(jsonb_build_object(
              'kind', ${m.kind}, 'position', ${m.position}, 'url', ${m.url}, 'original_url', ${m.original_url},
              'width', ${m.width}, 'height', ${m.height}, 'duration_seconds', ${m.duration_seconds},
              'archived_url', ${m.archived_url}, 'bytes', ${m.bytes}, 'content_type', ${m.content_type},
              'sha256', ${m.sha256}, 'archived_at', ${m.archived_at}, 'archive_error', ${m.archive_error})
            order by ${m.kind}, ${m.position}) as media
          from mediadock.media m where ${m.request_id} = ${f.request_id}
        ) m on true
      )
      select ${list(f, ...itemColumns)}, f.result, f.media
      from weighed f where f.bytes_before < ${maxPageBytes}::int order by ${f.position}`)
    return { rows: found, head: await headIn(tx) }
  }).catch((error: unknown) => {
    throw expired(error) ?? error
  })
  const data = rows.map(toItem)
  // Throws what its readers would be stopped by.
  JSON.stringify(data)
  return { data, next_after: data.at(-1)?.position ?? after, head }
}

async function readUnreadable(db: Database, after: number, words: string): Promise<FeedPage> {
  const { position, request_id } = feed
  const rows = await readWithin(db, async (tx) =>
    tx.select({ position, request_id }).from(feed).where(gt(position, after)).orderBy(position).limit(1),
  )
  const place = one(rows, 'reading the place of a change')
  const message = `the row of results cannot be written out (${words}): read its columns one by one in mediadock.results`
  return {
    data: [{ ...place, error: { code: 'unreadable', message } }],
    next_after: place.position,
    head: await headOf(db),
  }
}

/** The position of the newest change; 0 while there is none. */
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
