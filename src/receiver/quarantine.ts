import { sql } from 'drizzle-orm'
import type { Counter } from 'prom-client'
import type { Database } from '../runtime/postgres.ts'
import type { Refused } from './webhook.ts'

const maxWaitingBytes = 8 * 1024 * 1024
const flushRows = 100

export type Quarantine = {
  record: (refused: Refused) => void
  runOnce: () => Promise<{ more: boolean }>
  waiting: () => number
}

export type QuarantineDeps = { db: Database; dropped: Counter; maxRows: number; maxBytes: number; wake: () => void }

/**
 * Keeps refused arrivals whole, so that they can be verified again once a
 * missing secret is there. Written off the path of the answer, bounded in
 * memory and in the table: in the table the oldest go first.
 */
export function createQuarantine({ db, dropped, maxRows, maxBytes, wake }: QuarantineDeps): Quarantine {
  let waiting: Refused[] = []
  let waitingBytes = 0
  return {
    record: (refused) => {
      if (waitingBytes + refused.body.length > maxWaitingBytes) return dropped.inc()
      waiting.push(refused)
      waitingBytes += refused.body.length
      return wake()
    },
    runOnce: async () => {
      const batch = waiting.slice(0, flushRows)
      if (batch.length === 0) return { more: false }
      await store(db, batch)
      waiting = waiting.slice(batch.length)
      waitingBytes -= batch.reduce((sum, { body }) => sum + body.length, 0)
      await trim(db, { maxRows, maxBytes })
      return { more: waiting.length > 0 }
    },
    waiting: () => waiting.length,
  }
}

async function store(db: Database, batch: readonly Refused[]): Promise<void> {
  const column = <T>(pick: (refused: Refused) => T) => sql.param(batch.map(pick))
  await db.execute(sql`
    insert into mediadock.quarantine (arrived_at, reason, webhook_id, headers, body)
    select arrived_at, reason, webhook_id, headers::jsonb, decode(body, 'hex') from unnest(
      ${column((r) => r.arrivedAt.toISOString())}::text[]::timestamptz[], ${column((r) => r.reason)}::text[],
      ${column((r) => r.webhookId ?? null)}::text[], ${column((r) => JSON.stringify(r.headers))}::text[], ${column((r) => r.body.toString('hex'))}::text[]
    ) as r (arrived_at, reason, webhook_id, headers, body)`)
}

/** Bytes are those of bodies and headers, as they were sent. */
async function trim(db: Database, { maxRows, maxBytes }: { maxRows: number; maxBytes: number }): Promise<void> {
  await db.execute(sql`
    delete from mediadock.quarantine where id in (
      select id from (
        select id, row_number() over newest as place,
               sum(octet_length(body) + octet_length(headers::text)) over newest as bytes
        from mediadock.quarantine window newest as (order by arrived_at desc, id desc)
      ) kept
      where place > ${maxRows} or bytes > ${maxBytes})`)
}
