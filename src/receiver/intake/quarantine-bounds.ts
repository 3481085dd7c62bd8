import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import * as arriving from '../domain/arrivals-schema.ts'

const quarantine = columnsOf(arriving.quarantine)
const known = columnsOf(arriving.knownSenders)

/** Other replicas write too: after so long the table is looked at again. */
const lookAgainMs = 1000
/** While it overflows it is trimmed to a little less, so that not every batch has to be followed by a trimming. */
const slackShare = 10
const smallestRows = 1000
const deletesPerStatement = 1000

export type QuarantineBounds = { keep: (written: { rows: number; bytes: number }) => Promise<void> }

/** Holds the table to its rows and bytes (those of bodies and headers); looks at it only when it may have grown beyond them. */
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
  if (!held) throw new Error('Postgres answered the question for the size of the quarantine with no row')
  return { rows: held.rows, bytes: Number(held.bytes) }
}

type Bounds = { keepRows: number; keepBytes: number }

/** Of one sender no more than this part of the room is kept. */
const shareOfOneSender = 0.5

/**
 * Keeps the newest rows, of one sender half of the room at most, and those of known senders before
 * those of strangers. Deletes others and answers how many went.
 */
async function trim(db: Database, { keepRows, keepBytes }: Bounds): Promise<number> {
  const gone = await db.execute(sql`
    with ranked as (
      select ${list(quarantine, 'id', 'arrived_at', 'bytes')},
             coalesce(${quarantine.source} in (select ${known.source} from mediadock.known_senders), false) as known,
             row_number() over of_sender as sender_rows, sum(${quarantine.bytes}) over of_sender as sender_bytes
      from mediadock.quarantine
      window of_sender as (partition by ${quarantine.source} order by ${quarantine.arrived_at} desc, ${quarantine.id} desc rows unbounded preceding)
    ),
    newest as (
      select id, row_number() over in_order as place, sum(bytes) over in_order as total from ranked
      where sender_rows <= ${Math.ceil(keepRows * shareOfOneSender)}::int and sender_bytes <= ${Math.ceil(keepBytes * shareOfOneSender)}::bigint
      window in_order as (order by known desc, arrived_at desc, id desc rows unbounded preceding)
    )
    delete from mediadock.quarantine where ${quarantine.id} in (
      select id from ranked where id not in (select id from newest where place <= ${keepRows}::int and total <= ${keepBytes}::bigint)
      order by arrived_at, id limit ${deletesPerStatement})
    returning ${quarantine.id}`)
  return gone.length
}
