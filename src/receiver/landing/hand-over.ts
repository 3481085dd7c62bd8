import { parseBody, type Delivery, type MemoryRoom } from '../domain/delivery.ts'
import { sourceOf, type Keys } from '../domain/keys.ts'
import type { Hint, Parsed, Report } from '../domain/report.ts'
import { pathIn } from '../domain/webhook-path.ts'
import { createBatches, maxBatchRows, type Batches, type BatchesDeps } from './batches.ts'
import { beforeLanding } from './before-landing.ts'
import { createHeld } from './held.ts'
import { claim, claimedOnce, inboxLeaseSeconds, renew, type ClaimedWithBody } from './inbox.ts'
import type { LandingDeps } from './landing-deps.ts'
import { landingOfDelivery } from './row-to-write.ts'

export type HandOverDeps = LandingDeps &
  Pick<BatchesDeps, 'rest' | 'signal'> & {
    /** Called when a round of claiming had no room, and there is room again. */
    wake: () => void
    /** The time for renewals of leases. Tests replace it. */
    nowMs?: () => number
  }

export type HandOver = MemoryRoom &
  Pick<Batches, 'isBehind' | 'idle'> & {
    /**
     * One round: claims due deliveries, as far as there is room, and holds them until they have landed. Unreadable ones
     * are parked and hints land at once.
     */
    claimSome: () => Promise<{ claimed: number; parked: number; more: boolean }>
    /** Renews the claims that are older than half a lease. */
    renewClaims: () => Promise<{ more: false }>
  }

/**
 * Takes over the deliveries that this process has just stored, which are landed from memory, and those that it claims
 * from the queue. If the process dies, other processes claim them when the leases end.
 */
export function createHandOver(deps: HandOverDeps): HandOver {
  const { db, keys, time, signal, nowMs = () => performance.now() } = deps
  const held = createHeld(deps)
  const { wake, isBehind, idle } = createBatches({ ...deps, held })

  const holdClaimed = ({ body, ...claimed }: ClaimedWithBody, report: Report, claimedAtMs: number): void => {
    const landing = landingOfDelivery(deps, claimed, report)
    held.holdClaimed({ claimed, landing, bodyBytes: body.length, claimedAtMs })
    wake()
  }

  return {
    leaseSeconds: inboxLeaseSeconds,
    reserve: (delivery) => !signal.aborted && isLandedFromMemory(keys(), delivery) && held.reserve(delivery, nowMs()),
    take: (delivery) => {
      if (!delivery.report) return
      const claimed = claimedOnce(delivery)
      held.makeReady(claimed, landingOfDelivery(deps, claimed, delivery.report))
      wake()
    },
    release: ({ id }) => {
      held.releaseReserved(id)
      wake()
    },
    claimSome: async () => {
      const room = signal.aborted ? undefined : held.roomToClaim()
      if (!room) return { claimed: 0, parked: 0, more: false }
      const limit = Math.min(maxBatchRows, room.rows)
      const claimedAtMs = nowMs()
      const rows = await claim(db, { limit, maxBytes: room.bytes, now: time() })
      const others: { row: ClaimedWithBody; parsed: Parsed | Hint }[] = []
      for (const row of rows) {
        const parsed = parseBody(sourceOf(keys(), row.sourceName), row.body)
        if (parsed.ok && parsed.report && row.generation === undefined) holdClaimed(row, parsed.report, claimedAtMs)
        else others.push({ row, parsed })
      }
      // These need statements before they land, or instead. Meanwhile the rows held above land and are renewed.
      for (const { row, parsed } of others) {
        const report = await beforeLanding(deps, row, parsed)
        if (report) holdClaimed(row, report, claimedAtMs)
      }
      const parked = others.filter(({ parsed }) => !parsed.ok).length
      const bytes = rows.reduce((sum, { body }) => sum + body.length, 0)
      return { claimed: rows.length, parked, more: rows.length === limit || bytes >= room.bytes }
    },
    renewClaims: async () => {
      const startedAtMs = nowMs()
      const old = held.claimedUntil(startedAtMs - (inboxLeaseSeconds * 1000) / 2)
      // Lost claims need no handling: their landing settles nothing, and the newer claim settles the delivery.
      const claims = old.map(({ claimed }) => claimed)
      await renew(db, claims, time())
      for (const one of old) one.claimedAtMs = startedAtMs
      return { more: false }
    },
    isBehind,
    idle,
  }
}

/** False for a delivery that any process is to claim from the queue. */
function isLandedFromMemory(keys: Keys, { sourceName, headers, report, body }: Delivery): boolean {
  return (
    // A delivery of a removed source is parked.
    sourceOf(keys, sourceName) !== undefined &&
    // A webhook that ends a submit is joined with it.
    pathIn(headers).generation === undefined &&
    report !== undefined &&
    // A larger body is read back from the queue, since its parsed form takes several times its memory.
    body.length <= 64 * 1024
  )
}
