import { senderOf } from '../../platform/http/sender.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import * as arriving from '../domain/arrivals-schema.ts'

const senders = columnsOf(arriving.knownSenders)
const s = columnsOf(arriving.knownSenders, 's')

/** The latest addresses per key: the holder of one secret must not fill the table, or displace others' senders. */
const maxSendersPerKey = 64
/** A sender is written again after this time, so `last_at` may be an hour too old. */
const noteAgainMs = 3_600_000
/** How often other replicas' senders are read. New senders of this process are written within a second. */
const readEveryMs = 60_000
/** Bounds the memory of senders. */
const maxNoted = 10_000

export type KnownSenders = ReturnType<typeof createKnownSenders>

/**
 * Keeps the senders of recent authentic deliveries. A refused arrival from one of them may be authentic too, signed
 * with a secret that is missing here. The quarantine has room for it that strangers cannot take.
 */
export function createKnownSenders({ db, clock }: { db: Database; clock: () => Date }) {
  let known: ReadonlySet<string> = new Set()
  /** When each key and address was last noted. */
  const noted = new Map<string, number>()
  let unwritten: Sighting[] = []
  let keptAt = -Infinity

  return {
    /** Records the address of an authentic delivery. */
    note: ({ keyName, remote, at }: { keyName: string; remote: string | undefined; at: Date }): void => {
      const of = `${keyName} ${remote}`
      if (at.getTime() - (noted.get(of) ?? -Infinity) < noteAgainMs) return
      if (noted.size >= maxNoted) noted.clear()
      noted.set(of, at.getTime())
      if (unwritten.length < maxNoted) unwritten.push({ keyName, sender: senderOf(remote), at })
    },
    /** Returns true if any replica received an authentic delivery from the address in the last seven days. */
    isKnown: (sender: string): boolean => known.has(sender),
    /** Writes new senders and reads those of other replicas, as often as needed. May be called at any rate. */
    keep: async (): Promise<void> => {
      if (performance.now() - keptAt < (unwritten.length > 0 ? 1000 : readEveryMs)) return
      const written = unwritten.length
      await write(db, unwritten)
      unwritten = unwritten.slice(written)
      await forget(db, new Date(clock().getTime() - 7 * 86_400_000))
      const rows = await db.selectDistinct({ sender: arriving.knownSenders.source }).from(arriving.knownSenders)
      known = new Set(rows.map(({ sender }) => sender))
      keptAt = performance.now()
    },
  }
}

type Sighting = { keyName: string; sender: string; at: Date }

async function write(db: Database, sightings: readonly Sighting[]): Promise<void> {
  if (sightings.length === 0) return
  const column = <T>(pick: (sighting: Sighting) => T) => sql.param(sightings.map(pick))
  // Once per row of the table, and sorted by key, so that two writers cannot deadlock.
  await db.execute(sql`
    insert into mediadock.known_senders as s (${list(senders, 'key_name', 'source', 'last_at')})
    select key_name, source, max(last_at) from unnest(
      ${column((s) => s.keyName)}::text[], ${column((s) => s.sender)}::text[],
      ${column((s) => s.at.toISOString())}::text[]::timestamptz[]) as seen (key_name, source, last_at)
    group by key_name, source order by key_name, source
    on conflict (key_name, source) do update set last_at = greatest(${s.last_at}, excluded.last_at)`)
}

async function forget(db: Database, cutoff: Date): Promise<void> {
  await db.execute(sql`
    delete from mediadock.known_senders where (${list(senders, 'key_name', 'source')}) in (
      select key_name, source from (
        select ${list(senders, 'key_name', 'source', 'last_at')},
          row_number() over (
            partition by ${senders.key_name} order by ${senders.last_at} desc, ${senders.source}) as place
        from mediadock.known_senders
      ) as ranked where place > ${maxSendersPerKey} or last_at < ${cutoff.toISOString()}::timestamptz)`)
}
