import ipaddr from 'ipaddr.js'
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

export type KnownSenders = {
  /** Records the address of an authentic delivery. */
  note: (sighting: { keyName: string; remote: string | undefined; at: Date }) => void
  /** Returns true if any replica received an authentic delivery from the address in the last seven days. */
  isKnown: (sender: string) => boolean
  /**
   * Writes new senders and reads those of other replicas. May be called at any rate; it works only as often as needed.
   */
  keep: () => Promise<void>
}

/**
 * Keeps the senders of recent authentic deliveries. A refused arrival from one of them may be authentic too, signed
 * with a secret that is missing here. The quarantine has room for it that strangers cannot take.
 */
export function createKnownSenders({ db, clock }: { db: Database; clock: () => Date }): KnownSenders {
  let known: ReadonlySet<string> = new Set()
  const noted = new Map<string, number>()
  /** When each address was last seen with each key, until it is written. */
  const fresh = new Map<string, Map<string, Date>>()
  let hasFresh = false
  let keptAt = -Infinity

  return {
    note: ({ keyName, remote, at }) => {
      const of = `${keyName} ${remote}`
      if (at.getTime() - (noted.get(of) ?? -Infinity) < noteAgainMs) return
      if (noted.size >= 10_000) noted.clear()
      noted.set(of, at.getTime())
      const ofKey = fresh.get(keyName) ?? new Map<string, Date>()
      fresh.set(keyName, ofKey)
      if (ofKey.size < maxSendersPerKey) ofKey.set(senderOf(remote), at)
      hasFresh = true
    },
    isKnown: (sender) => known.has(sender),
    keep: async () => {
      if (performance.now() - keptAt < (hasFresh ? 1000 : readEveryMs)) return
      hasFresh = false
      const cutoff = new Date(clock().getTime() - 7 * 86_400_000)
      const writing = [...fresh].flatMap(([keyName, ofKey]) =>
        [...ofKey].map(([sender, at]) => ({ keyName, sender, at })),
      )
      await write(db, writing).catch((error: unknown) => {
        hasFresh = true
        throw error
      })
      for (const { keyName, sender } of writing) fresh.get(keyName)?.delete(sender)
      await forget(db, cutoff)
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
  // Sorted by key, so that two writers cannot deadlock.
  await db.execute(sql`
    insert into mediadock.known_senders as s (${list(senders, 'key_name', 'source', 'last_at')})
    select * from unnest(
      ${column((s) => s.keyName)}::text[], ${column((s) => s.sender)}::text[],
      ${column((s) => s.at.toISOString())}::text[]::timestamptz[]) as seen (key_name, source, last_at)
    order by key_name, source
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

/**
 * Returns the identity of a sender: an IPv4 address, or the /64 of an IPv6 address, whose owner has all its addresses.
 */
export function senderOf(remote: string | undefined): string {
  if (remote === undefined || !ipaddr.isValid(remote)) return 'unknown'
  const address = ipaddr.process(remote)
  if (address instanceof ipaddr.IPv4) return address.toString()
  return `${address.parts
    .slice(0, 4)
    .map((part) => part.toString(16))
    .join(':')}::/64`
}

/** Returns the network of a sender, in which one owner may have many: an IPv4 /24, or an IPv6 /48. */
export function networkOf(sender: string): string {
  return networkPattern.exec(sender)?.[0] ?? sender
}

const networkPattern = /^(?:[0-9]+\.){3}|^(?:[0-9a-f]+:){3}/
