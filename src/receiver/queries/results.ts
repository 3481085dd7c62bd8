import { z } from 'zod'
import { and, eq, getViewSelectedFields, inArray, isNotNull, sql } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { requestStatusSchema } from '../../wire/schemas.ts'
import { results } from '../domain/results-schema.ts'
import { readWithin } from './deadline.ts'
import { withIso } from './page.ts'
import { mediaOf, type Media } from './request-detail.ts'
import { requestSchema } from './requests.ts'

const { media_complete, progress, queue_position, source_name, external_id } = requestSchema.shape

/** A row of the view `mediadock.results`. */
export const resultRowSchema = z
  .object({
    request_id: z.guid(),
    status: requestStatusSchema,
    model: z.string().nullable(),
    output: z.unknown().describe('The output in the shape of the result endpoint; null without one.'),
    media_complete,
    cost: z.number().nullable(),
    error_code: z.string().nullable(),
    error_message: z.string().nullable(),
    created_at: z.iso.datetime(),
    completed_at: z.iso.datetime().nullable(),
    landed_at: z.iso.datetime().nullable().describe('When the receiver stored the terminal state.'),
    source: z.enum(['webhook', 'reconciler']).nullable(),
    key_name: z.string().nullable(),
    sandbox: z.boolean().nullable(),
    metadata: z.unknown(),
    idempotency_key: z.guid().nullable().describe('Of a request that was submitted through the receiver.'),
    progress,
    queue_position,
    source_name,
    external_id,
  })
  .meta({ id: 'ResultRow' })
export type ResultRow = z.infer<typeof resultRowSchema>

export type StoredResult = RowOf<typeof results, keyof ResultRow>

/** Reads the row of `results` of a request; undefined if the request is not known. */
export async function findResult(db: Database, requestId: string): Promise<ResultRow | undefined> {
  return readWithin(db, (tx) => resultOf(tx, requestId))
}

export type ResultWithMedia = { result: ResultRow; media: Media[] }

/** Reads the row of `results` together with its media; undefined if the request is not known. */
export async function findResultWithMedia(db: Database, requestId: string): Promise<ResultWithMedia | undefined> {
  return readWithin(db, async (tx) => {
    const result = await resultOf(tx, requestId)
    return result && { result, media: await mediaOf(tx, requestId) }
  })
}

async function resultOf(tx: Executor, requestId: string): Promise<ResultRow | undefined> {
  const [row] = await tx
    .select({
      ...getViewSelectedFields(results),
      metadata: sql`mediadock.readable_metadata(${results.metadata})`.mapWith(results.metadata),
    })
    .from(results)
    .where(eq(results.request_id, requestId))
  return row && toResultRow(row)
}

export function toResultRow(row: StoredResult): ResultRow {
  const result = withIso(row, 'created_at', 'completed_at', 'landed_at')
  return { ...result, cost: row.cost === null ? null : Number(row.cost) }
}

/** Returns those of the requests that are terminal. */
export async function terminalOf(db: Database, requestIds: readonly string[]): Promise<string[]> {
  const isTerminal = and(inArray(results.request_id, [...requestIds]), isNotNull(results.landed_at))
  const rows = await readWithin(db, async (tx) =>
    tx.select({ request_id: results.request_id }).from(results).where(isTerminal),
  )
  return rows.map(({ request_id }) => request_id)
}
