import { sql } from '../../platform/postgres/drizzle.ts'
import { databaseCodeOf, faultOf, postgresMessage, waitedToCommit } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { DeliveryInFlight } from './in-flight.ts'
import { idsOf, landBatch, trace, type Failed } from './land-batch.ts'
import { failDelivery, returnPauseMs, returnToInbox, type BatchDeps } from './returning.ts'

/* Handles deliveries that Postgres refuses to land, or whose rows another transaction locks. */

/**
 * After this many refusals with nothing landed, every row is probably refused, for example by a missing grant. Finding
 * one bad row of 500 takes ten refusals. More are tried than in intake: a batch of deliveries that were put off may
 * begin with some that are refused again, and the others must not wait for those.
 */
const maxRefusals = 64

type Part = { deliveries: readonly DeliveryInFlight[]; waitMs: number }

/**
 * Lands the deliveries of a failed statement in parts. If Postgres refuses a row, the batch is halved until that row is
 * alone; it is put off then, and the fifth time parked. Deliveries whose requests another transaction locks are
 * returned. Throws if Postgres itself failed, or if it refused `maxRefusals` parts and no delivery had an outcome.
 * batches.ts then returns the deliveries in mode LANDING to the inbox.
 */
export async function landInParts(deps: BatchDeps, first: Failed): Promise<void> {
  let { isAnyAnswered } = first
  let refusals = 1
  const parts = await partsOf(deps, first)
  for (let part = parts.pop(); part !== undefined; part = parts.pop()) {
    const { deliveries, waitMs } = part
    // A batch whose deadline has passed has released its deliveries, and another process may land them.
    if (deliveries[0]?.mode !== 'LANDING') return
    const failed = await landBatch(deps, deliveries, waitMs)
    isAnyAnswered ||= !failed || failed.isAnyAnswered
    if (!failed) continue
    if (faultOf(failed.error) === 'row') refusals += 1
    if (!isAnyAnswered && refusals > maxRefusals) throw failed.error
    parts.push(...(await partsOf(deps, failed)))
  }
}

/** Returns the parts to land next, as a stack. Returns to the inbox, or puts off, the deliveries that cannot land now. */
async function partsOf(deps: BatchDeps, { unlanded, error, waitMs, startedMs }: Failed): Promise<Part[]> {
  const [first] = unlanded
  if (first === undefined) return []
  const isAlone = unlanded.length === 1
  const fault = faultOf(error)
  if (isAlone || fault === 'server') {
    const failure = databaseCodeOf(error) ?? 'failed'
    for (const one of unlanded) trace(deps, one, startedMs, { outcome: 'failed', failure })
  }
  // The commit waited for other transactions that notify. Halves would wait for the same lock, so the whole batch waits
  // twice as long. Beyond 4 s, Postgres has failed.
  if (waitedToCommit(error) && waitMs < 4000) return [{ deliveries: unlanded, waitMs: waitMs * 2 }]
  if (fault === 'server') throw error
  if (fault === 'locked') return unlockedParts(deps, unlanded, waitMs)
  if (!isAlone) return halves(unlanded, waitMs)
  deps.inFlight.release(first)
  const end = await failDelivery(deps, first.claimed, postgresMessage(error))
  deps.logger.error({ err: error, ...idsOf(deps, first), end }, 'a delivery could not be landed')
  return []
}

function halves(deliveries: readonly DeliveryInFlight[], waitMs: number): Part[] {
  const half = Math.ceil(deliveries.length / 2)
  return [deliveries.slice(half), deliveries.slice(0, half)].map((part) => ({ deliveries: part, waitMs }))
}

const lockOfRequest = 'an open transaction locks the row of its request'
/** The lock is on a delivery, on media or in a trigger, or has ended since. */
const lockElsewhere = 'a lock of another transaction prevented the landing'

/** Returns the deliveries whose requests are locked to the inbox, and the others as parts. Halves them if no request is
 * locked. */
async function unlockedParts(deps: BatchDeps, unlanded: readonly DeliveryInFlight[], waitMs: number): Promise<Part[]> {
  const ids = unlanded.map(({ report }) => report.request_id)
  const locked = await lockedRequests(deps.db, ids)
  // A part waits for half of the time. If two halves both meet a lock, they wait for as long as the whole did. The
  // least is 10 ms, since a landing that holds the lock may take that long.
  const nextWaitMs = Math.max(10, Math.round(waitMs / 2))
  if (locked.size === 0 && unlanded.length > 1) return halves(unlanded, nextWaitMs)
  const isLocked = ({ report }: DeliveryInFlight) => locked.size === 0 || locked.has(report.request_id)
  await returnLocked(deps, unlanded.filter(isLocked), locked.size === 0 ? lockElsewhere : lockOfRequest)
  const others = unlanded.filter((one) => !isLocked(one))
  return others.length === 0 ? [] : [{ deliveries: others, waitMs: nextWaitMs }]
}

/**
 * Returns the requests among these whose rows another transaction has locked at this moment, including rows that it
 * inserted and has not committed. Takes about a millisecond for each of those. held_requests() is made by the migration
 * 0002_held_requests.
 */
async function lockedRequests(db: Database, requestIds: readonly string[]): Promise<Set<string>> {
  const rows = await db.execute<{ id: string }>(
    sql`select id from mediadock.held_requests(${sql.param([...requestIds])}::uuid[]) as id`,
  )
  return new Set(rows.map(({ id }) => id))
}

/** Returns deliveries that a lock of another transaction blocks. They are retried for as long as it lasts. */
async function returnLocked(deps: BatchDeps, locked: readonly DeliveryInFlight[], trouble: string): Promise<void> {
  const returned = locked.map((one) => ({ one, pauseMs: returnPauseMs(one.claimed.claims) }))
  await returnToInbox(deps, returned, trouble)
  for (const { claimed, report } of locked) {
    deps.logger.warn(
      { delivery_id: claimed.deliveryId, request_id: report.request_id, trouble },
      'a delivery waits for a lock of another transaction, landing it later',
    )
  }
}
