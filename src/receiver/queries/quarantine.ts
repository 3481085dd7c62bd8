import { z } from 'zod'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import { readWithin } from './deadline.ts'
import type { Paging, QuarantineFilters } from './filters.ts'
import { afterCursor, allOf, isoAlways, limitOf, microsOf, toPage, within, type Order, type Page } from './page.ts'

const q = columnsOf(arriving.quarantine, 'q')

export const quarantinedSchema = z
  .object({
    id: z.int(),
    arrived_at: z.iso.datetime(),
    reason: z.string(),
    webhook_id: z.string().nullable(),
    headers: z
      .record(z.string(), z.string())
      .meta({ description: 'As they came; the signature and credentials are left out.' }),
    bytes: z.int(),
    body_preview: z.string().meta({ description: 'The first bytes as text; what is not UTF-8 is replaced.' }),
  })
  .meta({ id: 'Quarantined' })
export type QuarantinedEntry = z.infer<typeof quarantinedSchema>

const previewBytes = 512
const order: Order = { at: sql`${q.arrived_at}`, id: sql`${q.id}`, idType: 'bigint' }

type Row = RowOf<typeof arriving.quarantine, 'id' | 'arrived_at' | 'reason' | 'webhook_id' | 'headers'> & {
  bytes: number
  micros: string
  preview: Buffer
}

/** Refused arrivals, newest first. Their signatures, which are only kept to verify them again, stay in Postgres. */
export async function listQuarantine(
  db: Database,
  { limit, cursor, reason, webhook_id, since, until }: QuarantineFilters & Paging,
): Promise<Page<QuarantinedEntry>> {
  const chosen = allOf([
    reason === undefined ? undefined : sql`${q.reason} = ${reason}`,
    webhook_id === undefined ? undefined : sql`${q.webhook_id} = ${webhook_id}`,
    within(order.at, { since, until }),
    afterCursor(cursor, order),
  ])
  const rows = await readWithin(db, (tx) =>
    tx.execute<Row>(sql`
      select ${q.id}, ${microsOf(order.at)} as micros, ${list(q, 'arrived_at', 'reason', 'webhook_id')}, ${q.headers} - 'x-service-signature' as headers,
             octet_length(${q.body}) as bytes, substr(${q.body}, 1, ${previewBytes}::integer) as preview
      from mediadock.quarantine q where ${chosen}
      order by ${q.arrived_at} desc nulls last, ${q.id} desc nulls last limit ${limitOf({ limit })}`),
  )
  return toPage(rows, { limit }, ({ micros: _micros, preview, ...row }) => ({
    ...row,
    id: Number(row.id),
    arrived_at: isoAlways(row.arrived_at),
    body_preview: preview.toString('utf8'),
  }))
}
