import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import * as arriving from '../domain/arrivals-schema.ts'

const quarantine = columnsOf(arriving.quarantine)
const known = columnsOf(arriving.knownSenders)

/** Other replicas write too, so the table is measured again after this time. */
const lookAgainMs = 1000
/** Trims a tenth below the bound, so that not every batch needs trimming. Small bounds are kept exactly. */
const slackShare = 10
const smallestRows = 1000
/** The limit of locked rows per statement. */
const deletesPerStatement = 1000

export type QuarantineBounds = { keep: (written: { rows: number; bytes: number }) => Promise<void> }

/** Keeps the table within its rows and bytes. It is measured only when it may have outgrown them. */
export function createQuarantineBounds({
  db,
  maxRows,
  maxBytes,
}: {
  db: Database
  maxRows: number
  maxBytes: number
}): QuarantineBounds {
  let room = { rows: 0, bytes: 0 }
  let lookedAt = -Infinity
  const isSmall = maxRows < smallestRows
  const keepRows = isSmall ? maxRows : maxRows - Math.floor(maxRows / slackShare)
  const keepBytes = isSmall ? maxBytes : maxBytes - Math.floor(maxBytes / slackShare)

  return {
    keep: async ({ rows, bytes }) => {
      room = { rows: room.rows - rows, bytes: room.bytes - bytes }
      if (room.rows >= 0 && room.bytes >= 0 && performance.now() - lookedAt < lookAgainMs) return
      lookedAt = performance.now()
      for (;;) {
        const held = await weigh(db)
        room = { rows: maxRows - held.rows, bytes: maxBytes - held.bytes }
        if (room.rows >= 0 && room.bytes >= 0) return
        if ((await trim(db, { keepRows, keepBytes })) === 0) return
      }
    },
  }
}

async function weigh(db: Database): Promise<{ rows: number; bytes: number }> {
  const [held] = await db.execute<{ rows: number; bytes: string }>(sql`
    select count(*)::int as rows, coalesce(sum(${quarantine.bytes}), 0)::text as bytes from mediadock.quarantine`)
  if (!held) throw new Error('Postgres returned no row for the size of the quarantine')
  return { rows: held.rows, bytes: Number(held.bytes) }
}

type Bounds = { keepRows: number; keepBytes: number }

/**
 * Keeps the newest `keepRows` rows, at most half of them of one sender, rows of known senders before those of
 * strangers. A large row counts as several, by its bytes, so `keepBytes` holds too. Deletes others and returns their
 * number.
 */
async function trim(db: Database, { keepRows, keepBytes }: Bounds): Promise<number> {
  const gone = await db.execute(sql`
    with counted as (
      select ${list(quarantine, 'id', 'source', 'arrived_at')},
        greatest(1, ${quarantine.bytes}::float8 * ${keepRows}::int / ${keepBytes}::bigint) as counts,
        coalesce(${quarantine.source} in (select ${known.source} from mediadock.known_senders), false) as is_known
      from mediadock.quarantine
    ),
    of_senders as (
      select *, sum(counts) over (
          partition by source order by arrived_at desc, id desc rows unbounded preceding) as of_sender
      from counted
    ),
    newest as (
      select id, sum(counts) over (
          order by is_known desc, arrived_at desc, id desc rows unbounded preceding) as total
      from of_senders where of_sender <= ceil(${keepRows}::int / 2.0)
    )
    delete from mediadock.quarantine where ${quarantine.id} in (
      select id from counted where id not in (select id from newest where total <= ${keepRows}::int)
      order by arrived_at, id limit ${deletesPerStatement})
    returning ${quarantine.id}`)
  return gone.length
}
