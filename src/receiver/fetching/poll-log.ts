import type { Counter } from 'prom-client'
import { createShares } from '../../platform/fair-share.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import { notDurable } from '../../platform/postgres/durable.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { createWriteBehind } from '../../platform/write-behind.ts'

/** One call of a poll, and its outcome. */
export type PollRecord = {
  requestId: string
  keyName: string
  polledAt: Date
  outcome: string
  detail: string | undefined
}

type PollLogDeps = { db: Database; dropped: Pick<Counter, 'inc'>; wake: () => void }

/** Creates the log of polls for timelines. Rows are written in batches, after landing, and bounded. */
export function createPollLog({ db, dropped, wake }: PollLogDeps) {
  const rows = createWriteBehind<PollRecord>({
    write: (polls) => write(db, polls),
    rowsPerWrite: 1000,
    room: createShares({ rows: 10_000, bytes: Infinity }, 1),
    dropped,
    wake,
  })
  return { record: rows.add, runOnce: rows.writeSome, waiting: rows.waiting }
}

async function write(db: Database, polls: readonly PollRecord[]): Promise<void> {
  const column = <T>(pick: (poll: PollRecord) => T) => sql.param(polls.map(pick))
  await db.execute(sql`
    insert into mediadock.polls (request_id, polled_at, key_name, outcome, detail)
    select * from unnest(
      ${column((p) => p.requestId)}::uuid[], ${column((p) => p.polledAt.toISOString())}::text[]::timestamptz[],
      ${column((p) => p.keyName)}::text[], ${column((p) => p.outcome)}::text[], ${column(detailOf)}::text[])
    where ${notDurable}
    on conflict do nothing`)
}

function detailOf({ detail }: PollRecord): string | null {
  // The limit of what a request's timeline shows.
  return detail?.replaceAll('\0', '').toWellFormed().slice(0, 500) ?? null
}
