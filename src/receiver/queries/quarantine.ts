import { z } from 'zod'
import { and, sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { quarantine } from '../domain/arrivals-schema.ts'
import type { Keys } from '../domain/keys.ts'
import type { Paging, QuarantineFilters } from './filters.ts'
import { matches, microsOf, readPage, type Order, type Page } from './page.ts'
import { withoutSignatures } from './quarantined.ts'

export const quarantinedSchema = z
  .object({
    id: z.int(),
    arrived_at: z.iso.datetime(),
    reason: z.string(),
    webhook_id: z.string().nullable(),
    headers: z
      .record(z.string(), z.string())
      .meta({ description: 'The headers as received, without signatures. Credentials are replaced by `[redacted]`.' }),
    bytes: z.int(),
    body_preview: z.string().meta({ description: 'The first bytes as text. Bytes that are not UTF-8 are replaced.' }),
  })
  .meta({ id: 'Quarantined' })
export type QuarantinedEntry = z.infer<typeof quarantinedSchema>

const order: Order = { at: quarantine.arrived_at, id: quarantine.id }

/** Lists refused arrivals, newest first, without their signatures, which are kept only for another verification. */
export async function listQuarantine(
  db: Database,
  keys: Keys,
  { since, until, limit, cursor, ...wanted }: QuarantineFilters & Paging,
): Promise<Page<QuarantinedEntry>> {
  const page = await readPage(db, { since, until, limit, cursor }, order, (tx, place) =>
    tx
      .select({
        id: quarantine.id,
        micros: microsOf(order.at),
        arrived_at: quarantine.arrived_at,
        reason: quarantine.reason,
        webhook_id: quarantine.webhook_id,
        headers: quarantine.headers,
        bytes: sql<number>`octet_length(${quarantine.body})`,
        preview: sql`substr(${quarantine.body}, 1, 512)`.mapWith(quarantine.body),
      })
      .from(quarantine)
      .where(and(matches(quarantine, wanted), place)),
  )
  const toEntry = ({ preview, ...row }: (typeof page.data)[number]) => ({
    ...row,
    headers: withoutSignatures(row, keys),
    body_preview: preview.toString('utf8'),
  })
  return { ...page, data: page.data.map(toEntry) }
}
