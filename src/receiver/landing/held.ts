import { createShares, type Amount, type Shares } from '../../platform/fair-share.ts'
import type { Delivery } from '../domain/delivery.ts'
import type { Claimed } from './inbox.ts'
import { estimateBytes, rowBytes, type Landing } from './row-to-write.ts'

/** The memory for deliveries in flight. Stored and claimed ones have separate room. */
const roomForStored = { rows: 1250, bytes: 10 * 1024 * 1024 }
const roomForClaimed = { rows: 1000, bytes: 8 * 1024 * 1024 }
/** Claiming fewer than a hundred costs as much as claiming a hundred. */
const leastClaim = { rows: 100, bytes: 1024 * 1024 }
/** The bytes of one statement. */
const maxBatchBytes = 8 * 1024 * 1024
/**
 * Deliveries of one request that may wait. Each take returns the rest of a flood to the queue: this many become due per
 * second, and all others after 300 s.
 */
const maxOfRequest = 4

/**
 * A held delivery is in one of these modes:
 *
 * - RESERVED: it has room, and is being stored with a claim of this process.
 *   A delivery claimed from the queue is READY at once.
 * - READY: it is claimed by this process, and waits for a batch.
 * - LANDING: it is in a batch that is being written.
 * - RELEASED: it is no longer held.
 *
 * RESERVED → READY → LANDING → RELEASED. A delivery that is not stored leaves from RESERVED, and one of a flood, or of
 * a process that ends, from READY.
 */
type Reserved = InRoom & { mode: 'RESERVED' }
export type HeldDelivery = InRoom & {
  mode: 'READY' | 'LANDING' | 'RELEASED'
  lane: LaneName
  /** A newer claim replaces both in READY. */
  claimed: Claimed
  landing: Landing
}

type InRoom = { room: Shares; keyName: string; bytes: number; claimedAtMs: number }

/**
 * Deliveries that were claimed before, in this row of the inbox or in an earlier one, have their own lane, so that no
 * fresh one waits for one that was put off or is replayed. One that is claimed anew while it waits keeps its lane.
 */
export type LaneName = 'fresh' | 'again'

/** A delivery that is returned to the inbox, and the pause after which it is due. */
export type Returned = { one: HeldDelivery; pauseMs: number }

/** A batch to write, and deliveries to return because too many of their request wait. */
export type Taken = { batch: HeldDelivery[]; flood: Returned[] }

/** A delivery claimed from the queue, with the row to write for it. */
type FromQueue = Pick<HeldDelivery, 'claimed' | 'landing' | 'claimedAtMs'> & { bodyBytes: number }

export type Held = ReturnType<typeof createHeld>

/** Holds the deliveries of this process in memory, and decides which of them go into a batch together. */
export function createHeld({ wake }: { /** Called when room was lacking and is there again. */ wake: () => void }) {
  const fromArrivals = createShares(roomForStored)
  const fromQueue = createShares(roomForClaimed)
  const held = new Map<string, Reserved | HeldDelivery>()
  const waiting = { fresh: 0, again: 0 }
  let lacksRoom = false

  const add = (id: string, one: Reserved | HeldDelivery) => {
    one.room.add(one.keyName, one.bytes)
    held.set(id, one)
  }

  const remove = (id: string, { room, keyName, bytes }: InRoom) => {
    held.delete(id)
    room.remove(keyName, bytes)
    if (lacksRoom && roomToClaim()) wake()
  }

  const ready = (given: InRoom & Pick<HeldDelivery, 'claimed' | 'landing'>): HeldDelivery => {
    const lane = given.claimed.claims > 1 ? 'again' : 'fresh'
    waiting[lane] += 1
    return { ...given, mode: 'READY', lane }
  }

  /** Returns the room for deliveries of the queue. If it is not worth a claim, `wake` is called once it is. */
  const roomToClaim = (): Amount | undefined => {
    const { rows, bytes } = fromQueue.held()
    const left = { rows: roomForClaimed.rows - rows, bytes: roomForClaimed.bytes - bytes }
    lacksRoom = left.rows < leastClaim.rows || left.bytes < leastClaim.bytes
    return lacksRoom ? undefined : left
  }

  const claimed = (): HeldDelivery[] => [...held.values()].filter((one): one is HeldDelivery => one.mode !== 'RESERVED')

  return {
    roomToClaim,
    /** Takes room for a delivery that is to be stored. Returns false if there is none. */
    reserve: ({ id, keyName, body }: Delivery, claimedAtMs: number): boolean => {
      if (held.has(id) || !fromArrivals.isOpen(keyName)) return false
      add(id, { mode: 'RESERVED', room: fromArrivals, keyName, bytes: body.length + rowBytes, claimedAtMs })
      return true
    },
    /** Makes a delivery ready that was reserved and is now stored. */
    makeReady: (claimed: Claimed, landing: Landing): void => {
      const { deliveryId: id } = claimed
      const one = held.get(id)
      // Otherwise its statement was abandoned, and the delivery given up: its lease expires.
      if (one?.mode === 'RESERVED') held.set(id, ready({ ...one, claimed, landing }))
    },
    /** Gives up a reserved delivery that was not stored. */
    releaseReserved: (id: string): void => {
      const one = held.get(id)
      if (one?.mode === 'RESERVED') remove(id, one)
    },
    holdClaimed: ({ claimed, landing, bodyBytes, claimedAtMs }: FromQueue): void => {
      const { deliveryId: id, keyName } = claimed
      const before = held.get(id)
      // Its lease ended while it waited. The newer claim replaces the old one.
      if (before?.mode === 'READY') Object.assign(before, { claimed, landing, claimedAtMs })
      // A RESERVED or LANDING one stays as it is. The newer claim expires.
      if (before) return
      const bytes = bodyBytes + rowBytes
      add(id, ready({ room: fromQueue, keyName, bytes, claimedAtMs, claimed, landing }))
    },
    /**
     * Takes the next batch of a lane: one delivery per request, the oldest. Two batches with the same request would wait
     * for each other. Undefined if none of those that wait may land now.
     */
    takeBatch: (lane: LaneName, maxRows: number): Taken | undefined => {
      if (waiting[lane] === 0) return undefined
      const batch: HeldDelivery[] = []
      const flood: Returned[] = []
      const inOtherBatch = new Set<string>()
      for (const one of held.values()) if (one.mode === 'LANDING') inOtherBatch.add(one.landing.requestId)
      const places = new Map<string, number>()
      let bytes = 0
      for (const one of held.values()) {
        if (one.mode !== 'READY' || one.lane !== lane) continue
        const { requestId } = one.landing
        const place = places.get(requestId) ?? 0
        places.set(requestId, place + 1)
        if (place >= maxOfRequest) {
          flood.push({ one, pauseMs: Math.min(Math.floor(place / maxOfRequest), 300) * 1000 })
        } else if (place === 0 && batch.length < maxRows && bytes < maxBatchBytes && !inOtherBatch.has(requestId)) {
          bytes += estimateBytes(one.landing)
          one.mode = 'LANDING'
          batch.push(one)
        }
      }
      waiting[lane] -= batch.length
      return batch.length + flood.length > 0 ? { batch, flood } : undefined
    },
    release: (one: HeldDelivery): void => {
      if (one.mode === 'RELEASED') return
      if (one.mode === 'READY') waiting[one.lane] -= 1
      one.mode = 'RELEASED'
      remove(one.claimed.deliveryId, one)
    },
    /** The deliveries of a lane that wait for a batch. */
    readyIn: (lane: LaneName): HeldDelivery[] => claimed().filter((one) => one.mode === 'READY' && one.lane === lane),
    /** How many deliveries of a lane wait for a batch. */
    waiting: (lane: LaneName): number => waiting[lane],
    /** The deliveries whose claim was made or renewed by then. */
    claimedUntil: (ms: number): HeldDelivery[] => claimed().filter(({ claimedAtMs }) => claimedAtMs <= ms),
    isEmpty: (): boolean => held.size === 0,
  }
}
