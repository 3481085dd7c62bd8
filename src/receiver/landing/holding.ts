import type { Database } from '../../platform/postgres/postgres.ts'
import type { Delivery } from '../domain/delivery.ts'
import { leaseSeconds, renew } from './inbox.ts'
import { createRoom, type Sized } from './room.ts'
import type { HeldDelivery } from './worker.ts'

export type Holding = {
  /** Room for one that is handed over. False: there is none, or none for one more of its key. */
  reserve: (id: string, of: Sized) => boolean
  isReserved: (id: string) => boolean
  unreserve: (id: string) => void
  /** What may be claimed now; undefined while that is too little to be worth it. */
  room: () => { rows: number; bytes: number } | undefined
  /** Counts one that was claimed from the queue. */
  add: (id: string, of: Sized) => void
  /** When a claim that is made now ends. */
  claimedUntil: () => Date
  /** Holds one whose claim ends then, by the time at which it was made: storing and claiming take a while. */
  hold: (claimed: HeldDelivery, until: Date) => void
  /** Answers whether it is held already: from now on by this claim, the newer one. */
  holdAgain: (claimed: HeldDelivery, until: Date) => boolean
  /** With the claim by which it is held now. */
  asHeld: (claimed: HeldDelivery) => HeldDelivery
  letGo: (id: string) => void
  isEmpty: () => boolean
  /** Renews the claims that are held for longer than usual. */
  renewClaims: () => Promise<{ more: false }>
}

/** What is handed over in memory, and beside it what is claimed from the queue: neither keeps the other out, nor one key another. */
const maxHandedOver = { rows: 1250, bytes: 10 * 1024 * 1024 }
const maxFromQueue = { rows: 1000, bytes: 8 * 1024 * 1024 }
/** Counted for each row besides its body. */
const rowBytes = 512
/** Claiming a few would cost as much as claiming many. */
const minRoom = { rows: 100, bytes: 1024 * 1024 }

/** A delivery as it is held that was stored as claimed once. */
export function heldOnce({ id, webhookId, keyName, environment, receivedAt, headers }: Delivery): HeldDelivery {
  const traceparent = headers['traceparent']
  return { deliveryId: id, claims: 1, failures: 0, webhookId, keyName, environment, receivedAt, traceparent }
}

/** What this process claims of the inbox: bounded, and renewed until it is let go. */
export function createHolding({ db, clock }: { db: Database; clock: () => Date }): Holding {
  const handedOver = createRoom(maxHandedOver)
  const fromQueue = createRoom(maxFromQueue)
  const held = new Map<string, { claimed: HeldDelivery; until: Date }>()
  const claimedUntil = () => new Date(clock().getTime() + leaseSeconds * 1000)

  return {
    reserve: (id, { keyName, bytes }) => handedOver.reserve(id, { keyName, bytes: bytes + rowBytes }),
    isReserved: (id) => handedOver.has(id),
    unreserve: handedOver.release,
    room: () => {
      const left = fromQueue.left()
      return left.rows >= minRoom.rows && left.bytes >= minRoom.bytes ? left : undefined
    },
    add: (id, { keyName, bytes }) => fromQueue.add(id, { keyName, bytes: bytes + rowBytes }),
    claimedUntil,
    hold: (claimed, until) => void held.set(claimed.deliveryId, { claimed, until }),
    holdAgain: (claimed, until) => {
      const one = held.get(claimed.deliveryId)
      if (one) Object.assign(one, { claimed, until })
      return one !== undefined
    },
    asHeld: (claimed) => held.get(claimed.deliveryId)?.claimed ?? claimed,
    letGo: (id) => {
      held.delete(id)
      handedOver.release(id)
      fromQueue.release(id)
    },
    isEmpty: () => held.size === 0,
    renewClaims: async () => {
      const now = clock()
      const soon = now.getTime() + (leaseSeconds * 1000) / 2
      const due = [...held.values()].filter(({ until }) => until.getTime() <= soon)
      if (due.length === 0) return { more: false }
      const claims = due.map(({ claimed }) => claimed)
      const until = new Date(now.getTime() + leaseSeconds * 1000)
      await renew(db, claims, now)
      for (const one of due) one.until = until
      return { more: false }
    },
  }
}
