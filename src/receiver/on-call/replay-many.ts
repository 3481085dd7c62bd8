import { faultOf, postgresMessage } from '../../platform/postgres/errors.ts'
import { maxPageItems, namedItems } from '../domain/page-limits.ts'
import type { LandingDeps } from '../landing/landing-deps.ts'
import { replayDelivery, type Change } from '../landing/replay.ts'
import { listDeliveryPlaces } from '../queries/deliveries.ts'
import type { DeliveryFilters } from '../queries/filters.ts'

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
  /** How many deliveries were replayed. */
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
