import { randomUUID } from 'node:crypto'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import { faultOf, postgresMessage } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import * as onCall from '../domain/on-call-schema.ts'
import { maxPageItems, namedItems } from '../domain/page-limits.ts'
import * as schema from '../domain/schema.ts'
import { parking } from '../landing/effects.ts'
import type { LandingDeps } from '../landing/landing-deps.ts'
import { replayDelivery, type Change } from '../landing/replay.ts'
import { requeue } from '../landing/requeue.ts'
import { readWithin } from '../queries/deadline.ts'
import { listDeliveryPlaces } from '../queries/deliveries.ts'
import type { DeliveryFilters } from '../queries/filters.ts'
import { withIso } from '../queries/page.ts'

export type ReplayMany = {
  filters: DeliveryFilters
  dryRun: boolean
  cursor?: string | undefined
  /** The most deliveries of one call. The next call continues from `next_cursor`. */
  limit: number
  /** Stops between two deliveries. */
  signal: AbortSignal
}

export type ReplayedMany = {
  replayed: number
  changes: Change[]
  failed: { delivery_id: string; message: string }[]
  next_cursor: string | null
}

/** Few, because landing of new deliveries comes first. */
const replaysAtOnce = 4

/** Replays matching deliveries, newest first, until `limit` or until the changes fill one answer. */
export async function replayMany(
  deps: LandingDeps,
  { filters, dryRun, cursor, limit, signal }: ReplayMany,
): Promise<ReplayedMany> {
  const all: ReplayedMany = { replayed: 0, changes: [], failed: [], next_cursor: cursor ?? null }
  let [done, bytes] = [0, 0]
  for (;;) {
    const wanted = Math.min(maxPageItems, limit - done)
    const places = await listDeliveryPlaces(deps.db, {
      ...filters,
      limit: wanted,
      cursor: all.next_cursor ?? undefined,
    })
    const page = places.slice(0, wanted)
    for (let at = 0; at < page.length; at += replaysAtOnce) {
      if (signal.aborted) return all
      const some = page.slice(at, at + replaysAtOnce)
      const changes = (await Promise.all(some.map(({ id }) => replayInto(deps, { id, dryRun, all })))).flat()
      all.changes.push(...changes)
      bytes += changes.reduce((sum, change) => sum + JSON.stringify(change).length, 0)
      done += some.length
      const isLast = at + some.length === places.length
      all.next_cursor = isLast ? null : (some.at(-1)?.cursor ?? null)
      // Bounds one answer: a change contains the rows before and after, outputs included.
      if (isLast || bytes > 4 * 1024 * 1024 || done >= limit) return all
    }
    if (page.length === 0) return { ...all, next_cursor: null }
  }
}

async function replayInto(
  deps: LandingDeps,
  { id, dryRun, all }: { id: string; dryRun: boolean; all: ReplayedMany },
): Promise<Change[]> {
  try {
    const changes = await replayDelivery(deps, id, { dryRun })
    if (changes) all.replayed += 1
    return changes ?? []
  } catch (error) {
    const fault = faultOf(error)
    if (fault === 'server') throw error
    deps.logger.error(
      { err: error, delivery_id: id },
      'a delivery could not be replayed, the replay continues with the next',
    )
    const what = fault === 'row' ? 'Postgres refuses its rows' : 'another transaction holds its request'
    all.failed.push({ delivery_id: id, message: `${what}: ${postgresMessage(error)}` })
    return []
  }
}

export type Failures = { message: string; count: number; delivery_ids: string[] }

/** Groups failed deliveries by their message, the most frequent first. */
export function groupFailures(failed: ReplayedMany['failed']): Failures[] {
  const groups = [...Map.groupBy(failed, ({ message }) => message)].map(([message, some]) => {
    const delivery_ids = some.slice(0, namedItems).map((one) => one.delivery_id)
    return { message, count: some.length, delivery_ids }
  })
  return groups.toSorted((a, b) => b.count - a.count)
}

const replays = columnsOf(onCall.replays)
const inbox = columnsOf(schema.inbox)
const attempts = columnsOf(schema.attempts)

type RequeueMany = {
  query: Readonly<Record<string, string>>
  filters: DeliveryFilters
  count: number
  actor: string
  time: SharedTime
  /** Stops between two pages. Deliveries that were put back by then still land. */
  signal: AbortSignal
}

/** Puts the deliveries that match the filters back into the inbox, newest first. */
export async function requeueMany(
  db: Database,
  { query, filters, count, actor, time, signal }: RequeueMany,
): Promise<{ id: string; count: number; requeued: number }> {
  const id = randomUUID()
  await db.insert(onCall.replays).values({ id, started_at: time(), actor, filters: query, count })
  let [cursor, before, requeued]: [string | undefined, number, number] = [undefined, 0, 0]
  do {
    signal.throwIfAborted()
    // No more at once, because landing waits for the rows that one statement locks.
    const places = await listDeliveryPlaces(db, { ...filters, limit: maxPageItems, cursor })
    const page = places.slice(0, maxPageItems)
    requeued += await requeue(db, { replayId: id, ids: page.map((place) => place.id), before, now: time() })
    before += page.length
    cursor = places.length > maxPageItems ? page.at(-1)?.cursor : undefined
  } while (cursor !== undefined)
  return { id, count, requeued }
}

const kept = ['id', 'started_at', 'actor', 'filters', 'count', 'requeued'] as const
/** With the numbers that still wait in the inbox, and that were parked again. */
type Row = RowOf<typeof onCall.replays, (typeof kept)[number]> & { waiting: number; parked: number }
export type ManyReplayed = Awaited<ReturnType<typeof listReplays>>[number]
export type ReplayProgress = NonNullable<Awaited<ReturnType<typeof findReplay>>>

const wasParked = sql`${attempts.outcome} in ('parked', ${parking})`

/** Returns the latest 50 replays, newest first. */
export async function listReplays(db: Database, which = sql`true`) {
  const rows = await readWithin(db, (tx) =>
    tx.execute<Row>(sql`
      select ${list(replays, ...kept)},
        (select count(*)::int from mediadock.inbox where ${inbox.replay_id} = replays.id) as waiting,
        (select count(*)::int from mediadock.attempts
          where ${attempts.replay_id} = replays.id and ${wasParked}) as parked
      from mediadock.replays where ${which} order by ${replays.started_at} desc limit 50`),
  )
  return rows.map((row) => withIso(row, 'started_at'))
}

/** Returns a replay with the outcomes of its deliveries, as far as retention keeps them; undefined if unknown. */
export async function findReplay(db: Database, id: string) {
  const [replay] = await listReplays(db, sql`${replays.id} = ${id}::uuid`)
  if (!replay) return undefined
  return readWithin(db, async (tx) => ({
    ...replay,
    outcomes: await tx.execute<{ outcome: string; count: number }>(sql`
      select ${attempts.outcome}, count(*)::int from mediadock.attempts
      where ${attempts.replay_id} = ${id}::uuid group by ${attempts.outcome} order by count desc`),
    failures: await tx.execute<Failures>(sql`
      select case ${attempts.outcome} when 'parked' then coalesce(${attempts.detail}, 'parked') else ${attempts.outcome} end
          as message, count(*)::int,
        (array_agg(${attempts.delivery_id}))[1:${namedItems}::int] as delivery_ids
      from mediadock.attempts where ${attempts.replay_id} = ${id}::uuid and ${wasParked}
      group by message order by count desc limit 20`),
  }))
}
