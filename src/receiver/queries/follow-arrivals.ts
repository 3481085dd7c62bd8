import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from '../../platform/logger.ts'
import { statementRows } from '../../platform/postgres/at-most.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { arrivalsSince, type TailedArrival } from './arrivals.ts'
import type { ArrivalFilters } from './filters.ts'
import type { Place } from './page.ts'

type FollowDeps = { db: Database; clock: () => Date; logger: Pick<Logger, 'warn'> }

/** The arrivals logged since the previous round. `isCut`: there were more than the limit. */
export type Round = { fresh: TailedArrival[]; isCut: boolean }

/**
 * Yields arrivals after a place as they are logged, oldest first, each once. A round may be empty. Ends when `closed`
 * aborts.
 */
export async function* followArrivals(
  { db, clock, logger }: FollowDeps,
  { filters, after, closed }: { filters: ArrivalFilters; after: Place; closed: AbortSignal },
): AsyncGenerator<Round, void, undefined> {
  const floors: number[] = []
  let sent = new Set<number>()
  // The first round of a resumed stream starts at the place where the stream was interrupted.
  let notBefore = new Date(Number(after.micros) / 1000)
  while (!closed.aborted) {
    const started = performance.now()
    // A statement that commits late is still found this many rounds later.
    const idFloor = floors.length < 6 ? 0 : (floors.shift() ?? 0)
    let round: Round = { fresh: [], isCut: false }
    try {
      const looked = clock()
      const found = await arrivalsSince(db, filters, { after, notBefore, idFloor, limit: statementRows })
      const fresh = found.filter(({ arrival }) => !sent.has(arrival.id))
      round = { fresh, isCut: found.length === statementRows }
      floors.push(Math.max(floors.at(-1) ?? 0, ...found.map(({ arrival }) => arrival.id)))
      sent = new Set([...sent, ...fresh.map(({ arrival }) => arrival.id)].filter((id) => id > idFloor))
      // An arrival is logged when it has been answered. A slow sender can delay that by this long.
      notBefore = new Date(looked.getTime() - 35_000)
    } catch (error) {
      logger.warn({ err: error }, 'tailing the arrival log failed, the next round tries again')
    }
    yield round
    // The pause limits an open tail to a quarter of a connection's time.
    await delay(Math.max(200, 3 * (performance.now() - started)), undefined, { signal: closed }).catch(() => {})
  }
}

/** Returns the present place: only later arrivals follow it. */
export function fromNow(now: Date): Place {
  return { micros: String(now.getTime() * 1000), id: '0' }
}
