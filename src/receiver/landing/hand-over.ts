import type { Amount } from '../../platform/fair-share.ts'
import { largeBodyBytes, parseBody, type Delivery } from '../domain/delivery.ts'
import { sourceOf, type Keys } from '../domain/keys.ts'
import type { Parsed, Report } from '../domain/report.ts'
import { pathIn } from '../domain/webhook-path.ts'
import { createBatches, maxBatchRows, type BatchesDeps } from './batches.ts'
import { beforeLanding } from './before-landing.ts'
import { claimedOnce } from './claimed.ts'
import { createInFlight } from './in-flight.ts'
import { claim, inboxLeaseSeconds, renew, returnClaims, retryOrPark, type ClaimedWithBody } from './inbox.ts'
import type { LandingDeps } from './landing-deps.ts'
import { deliveredReport } from './report-to-land.ts'
import { writeOrExpire } from './returning.ts'

type HandOverDeps = LandingDeps &
  Pick<BatchesDeps, 'giveWay' | 'signal'> & {
    /** False while the schema is older than this version: accepted deliveries then stay in the inbox. */
    isPrepared: () => boolean
    /** Called when a round of claiming had no room, and there is room again. */
    wakeInbox: () => void
    /** The time for renewals of leases. Tests replace it. */
    nowMs?: () => number
  }

/**
 * Takes over the deliveries that this process has just stored, which are landed from memory, and those that it claims
 * from the inbox. If the process dies, other processes claim them when the leases end.
 */
export function createHandOver(deps: HandOverDeps) {
  const { db, keys, time, signal, isPrepared, nowMs = () => performance.now() } = deps
  const inFlight = createInFlight(deps)
  const { wake: wakeBatches, isBehind, idle } = createBatches({ ...deps, inFlight })

  const addClaimed = ({ body, ...claimed }: ClaimedWithBody, parsed: Report, claimedAtMs: number): void => {
    const report = deliveredReport(claimed, parsed, deps.mediaHosts)
    inFlight.addClaimed({ claimed, report, bodyBytes: body.length, claimedAtMs })
    wakeBatches()
  }

  return {
    leaseSeconds: inboxLeaseSeconds,
    reserve: (delivery: Delivery): boolean => {
      const { parsed, body } = delivery
      if (signal.aborted || !isPrepared() || parsed.kind !== 'report') return false
      if (!isLandedFromMemory(keys(), delivery) || !inFlight.mayReserve(delivery)) return false
      const claimed = claimedOnce(delivery)
      const report = deliveredReport(claimed, parsed.report, deps.mediaHosts)
      inFlight.reserve({ claimed, report, bodyBytes: body.length, claimedAtMs: nowMs() })
      return true
    },
    makeReady: ({ id }: Delivery): void => {
      inFlight.makeReady(id)
      wakeBatches()
    },
    releaseReserved: ({ id }: Delivery): void => {
      inFlight.releaseReserved(id)
      wakeBatches()
    },
    /**
     * One round: claims due deliveries, as far as there is room, and begins to land them. Unreadable ones are parked
     * and hints are applied at once.
     */
    claimSome: async (): Promise<{ more: boolean }> => {
      const room = signal.aborted ? undefined : inFlight.roomToClaim()
      if (!room) return { more: false }
      const claimedAtMs = nowMs()
      return claimInto(deps, room, {
        add: (row, report) => addClaimed(row, report, claimedAtMs),
        mustRenew: () => isHalfOver(claimedAtMs, nowMs()),
      })
    },
    /** Renews the leases that are older than half their length. */
    renewLeases: async () => {
      const startedAtMs = nowMs()
      const old = inFlight.claimedBefore(startedAtMs - (inboxLeaseSeconds * 1000) / 2)
      // Lost claims need no handling: only the newer claim takes the delivery out of the inbox.
      const claims = old.map(({ claimed }) => claimed)
      await renew(db, claims, time())
      for (const one of old) one.claimedAtMs = startedAtMs
      return { more: false }
    },
    isBehind,
    idle,
  }
}

/** Returns true if half of a lease is over. */
const isHalfOver = (claimedAtMs: number, nowMs: number) => nowMs - claimedAtMs > (inboxLeaseSeconds * 1000) / 2

/**
 * Claims due deliveries and adds those that carry a report. Unreadable ones are parked, and hints are applied at once.
 */
async function claimInto(
  deps: LandingDeps,
  room: Amount,
  { add, mustRenew }: { add: (row: ClaimedWithBody, report: Report) => void; mustRenew: () => boolean },
): Promise<{ more: boolean }> {
  const { db, keys, time, logger } = deps
  const limit = Math.min(maxBatchRows, room.rows)
  const rows = await claim(db, { limit, maxBytes: room.bytes, now: time() })
  const others: { row: ClaimedWithBody; parsed: Parsed }[] = []
  for (const row of rows) {
    try {
      const parsed = parseBody(sourceOf(keys(), row.sourceName), row.body)
      if (parsed.kind === 'report' && row.idempotencyKey === undefined) add(row, parsed.report)
      else others.push({ row, parsed })
    } catch (error) {
      // A bug that one body meets must not keep the others of each claim from landing.
      logger.error({ err: error, delivery_id: row.deliveryId }, 'internal error: a claimed delivery could not be read')
      const detail = 'internal error: a claimed delivery could not be read (see the log)'
      const failure = { claimed: row, reason: 'landing_failed' as const, detail, now: time() }
      await writeOrExpire(deps, row, retryOrPark(db, failure))
    }
  }
  // These need statements before they land, or instead. Meanwhile the rows added above land and are renewed.
  for (const [index, { row, parsed }] of others.entries()) {
    // Some that wait for locks must not keep the rest until its leases end.
    if (mustRenew()) {
      const rest = others.slice(index).map((one) => one.row)
      await returnClaims(db, rest, { now: time() })
      break
    }
    const report = await beforeLanding(deps, row, parsed)
    if (report) add(row, report)
  }
  const bytes = rows.reduce((sum, { body }) => sum + body.length, 0)
  return { more: rows.length === limit || bytes >= room.bytes }
}

/** False for a delivery that any process is to claim from the inbox. */
function isLandedFromMemory(keys: Keys, { sourceName, headers, body }: Delivery): boolean {
  return (
    // A delivery of a removed source is parked.
    sourceOf(keys, sourceName) !== undefined &&
    // A webhook that ends a submit is joined with it.
    pathIn(headers).idempotencyKey === undefined &&
    body.length <= largeBodyBytes
  )
}
