import { z } from 'zod'
import { eq, inArray, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { quarantine } from '../domain/arrivals-schema.ts'
import { sourceOf, type Keys } from '../domain/keys.ts'
import { pathIn } from '../domain/webhook-path.ts'
import { admitAgain, type Quarantined } from '../intake/admit-again.ts'
import { readWithin } from './deadline.ts'
import type { Paging, QuarantineFilters } from './filters.ts'
import { matches, microsOf, newestFirst, readPage, type Order, type Page } from './page.ts'

export const quarantinedSchema = z
  .object({
    id: z.int(),
    arrived_at: z.iso.datetime(),
    reason: z.string(),
    webhook_id: z.string().nullable(),
    headers: z.record(z.string(), z.string()).describe('As received, without signatures and credentials.'),
    bytes: z.int(),
    body_preview: z.string().describe('The first bytes as text. Bytes that are not UTF-8 are replaced.'),
  })
  .meta({ id: 'Quarantined' })
export type QuarantinedEntry = z.infer<typeof quarantinedSchema>

const order: Order = { at: quarantine.arrived_at, id: quarantine.id }

/** Lists refused arrivals, newest first, without their signatures, which are kept only for another verification. */
export async function listQuarantine(
  db: Database,
  keys: Keys,
  query: QuarantineFilters & Paging,
): Promise<Page<QuarantinedEntry>> {
  const { id, arrived_at, reason, webhook_id, headers, body } = quarantine
  const bytes = sql<number>`octet_length(${body})`
  const preview = sql`substr(${body}, 1, 512)`.mapWith(body)
  const columns = { id, micros: microsOf(order.at), arrived_at, reason, webhook_id, headers, bytes, preview }
  return readPage(db, query, {
    order,
    matching: matches(quarantine, query),
    select: (tx, where) => tx.select(columns).from(quarantine).where(where),
    toItem: ({ preview, ...row }) => ({
      ...row,
      headers: withoutSignatures(row, keys),
      body_preview: preview.toString('utf8'),
    }),
  })
}

export type QuarantinedDetail = Quarantined & {
  /** The key whose secret matches now; undefined if none does. */
  matchingKey: string | undefined
}

/**
 * Returns the headers that may be shown. Signatures of every source are removed, since a webhook may have come to the
 * wrong source, or its source may no longer be configured.
 */
export function withoutSignatures({ headers }: Pick<Quarantined, 'headers'>, keys: Keys): Record<string, string> {
  const own = sourceOf(keys, pathIn(headers).sourceName)?.kind.signatureHeaders ?? []
  return Object.fromEntries(
    Object.entries(headers).filter(([name]) => !own.includes(name) && !name.includes('signature')),
  )
}

/** Reads one refused arrival without its signature; undefined if it does not exist. */
export async function findQuarantined(db: Database, id: number, keys: Keys): Promise<QuarantinedDetail | undefined> {
  const [row] = await readWithin(db, async (tx) => tx.select().from(quarantine).where(eq(quarantine.id, id)))
  return row && { ...row, headers: withoutSignatures(row, keys), matchingKey: admitAgain(row, keys)?.keyName }
}

/** How many of the tried arrivals another verification would accept, and the keys that signed these. */
export type Check = { tried: number; acceptable: number; keyNames: readonly string[] }

/**
 * Tries the present secrets on the newest arrivals with a reason, and changes nothing. Bounded, so that a page can
 * afford it with a full quarantine.
 */
export async function checkQuarantine(db: Database, keys: Keys, reason: string): Promise<Check | undefined> {
  const which = eq(quarantine.reason, reason)
  const newest = firstThatFit({ which, order: newestFirst(order), rows: 50, bytes: 1024 * 1024 })
  const rows = await readWithin(db, async (tx) => tx.select().from(quarantine).where(inArray(quarantine.id, newest)))
  if (rows.length === 0) return undefined
  const keyNames = rows.flatMap((row) => admitAgain(row, keys)?.keyName ?? [])
  return { tried: rows.length, acceptable: keyNames.length, keyNames: [...new Set(keyNames)] }
}

type FirstRows = { which: SQL | undefined; order: SQL; rows: number; bytes: number }

/** SQL: the ids of the first rows in this order that fit into these bytes together. The first one always fits. */
export function firstThatFit({ which = sql`true`, order, rows, bytes }: FirstRows): SQL {
  return sql`(
    select id from (
      select id, place, sum(bytes) over (order by place) as total from (
        select ${quarantine.id}, ${quarantine.bytes}, row_number() over (order by ${order}) as place
        from ${quarantine} where ${which} order by ${order} limit ${rows}
      ) as first_rows
    ) as summed where place = 1 or total <= ${bytes}::int)`
}
