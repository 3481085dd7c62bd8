import { largeBodyBytes, type Delivery, type Reservation } from '../domain/delivery.ts'
import { sourceOf, type Keys } from '../domain/keys.ts'
import type { Report } from '../domain/report.ts'
import { pathIn } from '../domain/webhook-path.ts'
import { createBatches, type BatchesDeps } from './batches.ts'
import { firstClaimOf } from './claimed.ts'
import { claimRound } from './claiming.ts'
import { createInFlight } from './in-flight.ts'
import { inboxLeaseSeconds, renew, type ClaimedWithBody } from './inbox.ts'
import type { LandingDeps } from './landing-deps.ts'
import { deliveredReport } from './report-to-land.ts'

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
 * from the inbox. Intake sees only HandOver of domain/delivery.ts. If the process dies, other processes claim the
 * deliveries when the leases expire.
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
    reserve: (delivery: Delivery): Reservation | undefined => {
      const { parsed, body } = delivery
      if (signal.aborted || !isPrepared() || parsed.kind !== 'report') return undefined
      if (!isLandedFromMemory(keys(), delivery) || !inFlight.mayReserve(delivery)) return undefined
      const claimed = firstClaimOf(delivery)
      const report = deliveredReport(claimed, parsed.report, deps.mediaHosts)
      const one = inFlight.reserve({ claimed, report, bodyBytes: body.length, claimedAtMs: nowMs() })
      return {
        makeReady: () => {
          inFlight.makeReady(one)
          wakeBatches()
        },
        release: () => {
          inFlight.release(one)
          wakeBatches()
        },
      }
    },
    /**
     * One round: claims due deliveries, as far as there is room, and begins to land them. Unreadable ones are parked
     * and hints are applied at once.
     */
    claimSome: async (): Promise<{ more: boolean }> => {
      const room = signal.aborted ? undefined : inFlight.roomToClaim()
      if (!room) return { more: false }
      const claimedAtMs = nowMs()
      return claimRound(deps, room, {
        add: (row, report) => addClaimed(row, report, claimedAtMs),
        isLeaseHalfOver: () => isHalfOver(claimedAtMs, nowMs()),
      })
    },
    /** Renews the leases that are older than half their length. */
    renewLeases: async () => {
      const startedAtMs = nowMs()
      const old = inFlight.claimedBefore(startedAtMs - (inboxLeaseSeconds * 1000) / 2)
      // Lost claims need no handling: only the newer claim takes the delivery out of the inbox. Nor do rows
      // that another transaction locks, which keep their leases: no process claims a row while it is locked. If it is
      // claimed later, the claim here is lost.
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
