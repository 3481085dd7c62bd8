import { createShares, type Amount } from '../../platform/fair-share.ts'
import type { Claimed } from './claimed.ts'
import { estimateBytes, rowBytes, type ReportToLand } from './report-to-land.ts'

/** The memory for deliveries in flight. Stored and claimed ones have separate room. */
const roomForStored = { rows: 1250, bytes: 10 * 1024 * 1024 }
const roomForClaimed = { rows: 1000, bytes: 8 * 1024 * 1024 }
/** Claiming fewer than a hundred costs as much as claiming a hundred. */
const leastClaim = { rows: 100, bytes: 1024 * 1024 }
/** The bytes of one statement. */
const maxBatchBytes = 8 * 1024 * 1024
/**
 * Deliveries of one request that may wait. Each batch returns the others of a flood to the inbox, to become due at the
 * pace of this many per second: the delivery at place n after about n/4 seconds, 300 s at most.
 */
const maxOfRequest = 4

/**
 * A delivery that this process is landing, with its claim and the report that it carries. It is in one of these modes:
 *
 * - RESERVED: it has room, and is being stored with its claim. A delivery claimed from the inbox is READY at once.
 * - READY: it waits for a batch.
 * - LANDING: it is in a batch that is being written.
 * - RELEASED: it is no longer in flight.
 *
 * RESERVED → READY → LANDING → RELEASED. A delivery that is not stored leaves from RESERVED, and one of a flood, or of
 * a process that stops while batches fail, from READY.
 */
export type DeliveryInFlight = LatestClaim & {
  mode: 'RESERVED' | 'READY' | 'LANDING' | 'RELEASED'
  lane: LaneName
  freeRoom: () => void
}

/** The parts of a delivery in flight that a newer claim of it replaces, while it is READY. */
type LatestClaim = {
  claimed: Claimed
  report: ReportToLand
  /** When the claim was made, or its renewal last tried. */
  claimedAtMs: number
}

/**
 * Deliveries that were claimed before, in this row of the inbox or in an earlier one, have their own lane, so that no
 * fresh one waits for one that was put off or is replayed. One that is claimed anew while it waits keeps its lane.
 */
export type LaneName = 'fresh' | 'again'

/** A delivery that is returned to the inbox, and the pause after which it is due. */
export type Returned = { one: DeliveryInFlight; pauseMs: number }

/** A batch to write, and deliveries to return, which are released: too many of their request wait. */
export type Taken = { batch: DeliveryInFlight[]; flood: Returned[] }

type Added = LatestClaim & { bodyBytes: number }

export type InFlight = ReturnType<typeof createInFlight>

/** Keeps the deliveries in flight in memory, and decides which of them go into a batch together. */
export function createInFlight({
  wakeInbox,
}: {
  /** Called when room was lacking and is there again. */
  wakeInbox: () => void
}) {
  const stored = createShares(roomForStored)
  const fromInbox = createShares(roomForClaimed)
  const deliveries = new Map<string, DeliveryInFlight>()
  const ready = { fresh: 0, again: 0 }
  let lacksRoom = false

  const add = (mode: 'RESERVED' | 'READY', { bodyBytes, ...given }: Added): DeliveryInFlight => {
    const { deliveryId, keyName, claims } = given.claimed
    const bytes = bodyBytes + rowBytes
    const room = mode === 'RESERVED' ? stored : fromInbox
    const lane = claims > 1 ? 'again' : 'fresh'
    room.add(keyName, bytes)
    const one: DeliveryInFlight = { ...given, mode, lane, freeRoom: () => room.remove(keyName, bytes) }
    deliveries.set(deliveryId, one)
    if (mode === 'READY') ready[lane] += 1
    return one
  }

  const release = (one: DeliveryInFlight): void => {
    if (one.mode === 'RELEASED') return
    if (one.mode === 'READY') ready[one.lane] -= 1
    one.mode = 'RELEASED'
    deliveries.delete(one.claimed.deliveryId)
    one.freeRoom()
    if (lacksRoom && roomToClaim()) wakeInbox()
  }

  /** Returns the room for deliveries of the inbox. If it is not worth a claim, `wakeInbox` is called once it is. */
  const roomToClaim = (): Amount | undefined => {
    const { rows, bytes } = fromInbox.held()
    const left = { rows: roomForClaimed.rows - rows, bytes: roomForClaimed.bytes - bytes }
    // Read by release().
    lacksRoom = left.rows < leastClaim.rows || left.bytes < leastClaim.bytes
    return lacksRoom ? undefined : left
  }

  return {
    roomToClaim,
    /** Returns true if a delivery that is to be stored is not in flight already, and there is room for it. */
    mayReserve: ({ id, keyName }: { id: string; keyName: string }): boolean =>
      !deliveries.has(id) && stored.isOpen(keyName),
    /** Adds a delivery that is to be stored. */
    reserve: (delivery: Added): DeliveryInFlight => add('RESERVED', delivery),
    /** Makes a delivery ready that was reserved and is now stored. */
    makeReady: (one: DeliveryInFlight): void => {
      one.mode = 'READY'
      ready[one.lane] += 1
    },
    /** Adds a delivery that was claimed from the inbox. */
    addClaimed: (delivery: Added): void => {
      const before = deliveries.get(delivery.claimed.deliveryId)
      if (!before) return void add('READY', delivery)
      // Its lease ended while it waited, and the newer claim replaces the old one. A RESERVED or LANDING one stays as
      // it is, and the newer claim expires.
      const { claimed, report, claimedAtMs } = delivery
      const latest: LatestClaim = { claimed, report, claimedAtMs }
      if (before.mode === 'READY') Object.assign(before, latest)
    },
    /**
     * Takes the next batch of a lane: one delivery per request, the one that came into memory first. Two batches with
     * the same request would wait for each other. Undefined if none of those that wait may land now.
     */
    takeBatch: (lane: LaneName, maxRows: number): Taken | undefined => {
      if (ready[lane] === 0) return undefined
      const batch: DeliveryInFlight[] = []
      const flood: Returned[] = []
      const inOtherBatch = new Set<string>()
      for (const one of deliveries.values()) if (one.mode === 'LANDING') inOtherBatch.add(one.report.request_id)
      const places = new Map<string, number>()
      let bytes = 0
      for (const one of deliveries.values()) {
        if (one.mode !== 'READY' || one.lane !== lane) continue
        const { request_id: requestId } = one.report
        const place = places.get(requestId) ?? 0
        places.set(requestId, place + 1)
        if (place >= maxOfRequest) {
          release(one)
          flood.push({ one, pauseMs: Math.min(Math.floor(place / maxOfRequest), 300) * 1000 })
        } else if (place === 0 && batch.length < maxRows && bytes < maxBatchBytes && !inOtherBatch.has(requestId)) {
          bytes += estimateBytes(one.report)
          one.mode = 'LANDING'
          batch.push(one)
        }
      }
      ready[lane] -= batch.length
      return batch.length + flood.length > 0 ? { batch, flood } : undefined
    },
    release,
    /** Returns the deliveries of a lane that wait for a batch. */
    readyIn: (lane: LaneName): DeliveryInFlight[] =>
      [...deliveries.values()].filter((one) => one.mode === 'READY' && one.lane === lane),
    /** Returns how many deliveries of a lane wait for a batch. */
    countReady: (lane: LaneName): number => ready[lane],
    /** Returns the deliveries, but for reserved ones, whose claim was last made or renewed before this time. */
    claimedBefore: (ms: number): DeliveryInFlight[] =>
      [...deliveries.values()].filter(({ mode, claimedAtMs }) => mode !== 'RESERVED' && claimedAtMs <= ms),
    isEmpty: (): boolean => deliveries.size === 0,
  }
}
