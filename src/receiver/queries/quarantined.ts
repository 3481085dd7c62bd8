import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import type { Keys } from '../domain/keys.ts'
import { authenticate, toKept, type Kept, type KeptRow } from '../intake/quarantine.ts'
import { readWithin } from './deadline.ts'

const quarantine = columnsOf(arriving.quarantine)

export type QuarantinedDetail = Kept & {
  /** Whose secret matches today; undefined while it is not authentic. */
  matchingKey: string | undefined
}

/** One refused arrival, whole but for its signature; undefined when there is none. */
export async function findQuarantined(db: Database, id: number, keys: Keys): Promise<QuarantinedDetail | undefined> {
  const [row] = await readWithin(db, (tx) =>
    tx.execute<KeptRow>(
      sql`select ${list(quarantine, 'id', 'arrived_at', 'reason', 'webhook_id', 'headers', 'body')} from mediadock.quarantine where ${quarantine.id} = ${id}::bigint`,
    ),
  )
  if (!row) return undefined
  const kept = toKept(row)
  const { 'x-service-signature': _signature, ...headers } = kept.headers
  return { ...kept, headers, matchingKey: authenticate(kept, keys)?.keyName }
}

/** What verifying again would accept of a cause, as far as it was tried. */
export type Check = { tried: number; acceptable: number; keyNames: readonly string[] }

const triedRows = 50
const triedBytes = 1024 * 1024

/**
 * Tries the newest of a cause with today's secrets, and changes nothing:
 * bounded, so that a page can afford it while the quarantine is full.
 */
export async function checkQuarantine(
  db: Database,
  keys: Keys,
  { reason }: { reason: string },
): Promise<Check | undefined> {
  const rows = await readWithin(db, (tx) =>
    tx.execute<KeptRow>(sql`
      select ${list(quarantine, 'id', 'arrived_at', 'reason', 'webhook_id', 'headers', 'body')} from mediadock.quarantine where ${quarantine.id} in (
        select id from (
          select id, row_number() over newest as place, sum(octet_length(body)) over newest as bytes
          from (select ${list(quarantine, 'id', 'arrived_at', 'body')} from mediadock.quarantine where ${quarantine.reason} = ${reason}
            order by ${quarantine.arrived_at} desc nulls last, ${quarantine.id} desc nulls last limit ${triedRows}) as newest_rows
          window newest as (order by arrived_at desc, id desc)
        ) as ranked where place = 1 or bytes <= ${triedBytes})`),
  )
  if (rows.length === 0) return undefined
  const keyNames = rows.flatMap((row) => authenticate(toKept(row), keys)?.keyName ?? [])
  return { tried: rows.length, acceptable: keyNames.length, keyNames: [...new Set(keyNames)] }
}
