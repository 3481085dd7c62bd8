import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import { answered } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import { networkIn } from './refused-source.ts'

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
        if ((await trim(db, { maxRows, maxBytes, keepRows, keepBytes })) === 0) return
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

type Bounds = { maxRows: number; maxBytes: number; keepRows: number; keepBytes: number }

/**
 * Fills the room from known senders and strangers alike, from the networks of
 * each, the senders of each network and the causes of each sender alike, each from
 * its newest, and deletes what is left over: of one that floods the oldest go, and
 * what others sent stays. Answers how many went.
 */
async function trim(db: Database, { maxRows, maxBytes, keepRows, keepBytes }: Bounds): Promise<number> {
  const gone = await db.execute(sql`
    with held as (
      -- Sorted four times: by bytes, not by the words of a language.
      select ${quarantine.id}, ${quarantine.arrived_at}, ${quarantine.bytes}, ${quarantine.reason} collate "C" as reason, ${quarantine.source} collate "C" as source, ${networkIn(sql`${quarantine.source}`)} collate "C" as network,
             coalesce(${quarantine.source} in (select ${known.source} from mediadock.known_senders), false) as known,
             ${quarantine.bytes}::float8 / ${maxBytes}::float8 + 1.0 / ${maxRows}::float8 as weight
      from mediadock.quarantine
    ),
    -- Each depth is how much lies before a row in its share, where what lies least deep one level below comes first.
    of_cause as (select *, sum(weight) over (partition by known, network, source, reason order by arrived_at desc, id desc rows unbounded preceding) as cause_depth from held),
    of_sender as (select *, sum(weight) over (partition by known, network, source order by cause_depth, arrived_at desc, id desc rows unbounded preceding) as sender_depth from of_cause),
    of_network as (select *, sum(weight) over (partition by known, network order by sender_depth, arrived_at desc, id desc rows unbounded preceding) as network_depth from of_sender),
    of_all as (select *, sum(weight) over (partition by known order by network_depth, arrived_at desc, id desc rows unbounded preceding) as depth from of_network),
    kept as (select id, row_number() over filling as place, sum(bytes) over filling as total from of_all window filling as (order by depth, arrived_at desc, id desc rows unbounded preceding))
    delete from mediadock.quarantine where ${quarantine.id} in (
      select id from kept where place > ${keepRows} or total > ${keepBytes} order by place desc limit ${deletesPerStatement})
    returning ${quarantine.id}`)
  return answered(gone, 'trimming the quarantine').length
}
