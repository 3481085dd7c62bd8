import assert from 'node:assert/strict'
import { createShares, type Amount, type Shares } from '../../platform/fair-share.ts'
import { parseBody, type MemoryRoom } from '../domain/delivery.ts'
import { sourceOf } from '../domain/keys.ts'
import type { Hint, Parsed, Report } from '../domain/report.ts'
import { pathIn } from '../domain/webhook-path.ts'
import { createBatches, type BatchesDeps } from './batches.ts'
import { beforeLanding } from './before-landing.ts'
import { claim, claimedOnce, inboxLeaseSeconds, renew, type Claimed, type ClaimedWithBody } from './inbox.ts'
import type { Ready, LandingDeps } from './land-or-put-off.ts'
import { landingOfDelivery, rowBytes } from './row-to-write.ts'

/*
 * The ways of a delivery through this folder, each with the file to read:
 *
 *   stored here, or claimed from the queue   hand-over.ts holds it, inbox.ts is the queue
 *   parsed into the row to write             row-to-write.ts
 *   put into a batch                         batches.ts: one delivery of each request
 *   landed                                   two-statements.ts: the short statement, then the whole one for the others.
 *                                            landing-sql.ts has their text: judges it and writes the request
 *   flagged, parked or discarded             outcome-sql.ts, in the same statement
 *   refused by Postgres                      land-or-put-off.ts: halves the batch, puts off, parks after five failures
 *   not simply a report                      before-landing.ts, before all from the batch on, or in place of it
 *   processed again                          replay.ts: lands it at once, or puts many back into the queue
 */

export type HandOverDeps = LandingDeps &
  Pick<BatchesDeps, 'rest' | 'signal'> & {
    /** Called when a round of claiming had no room, and there is room again. */
    wake: () => void
    /** The time for renewals of leases. Tests replace it. */
    nowMs?: () => number
  }

export type HandOver = MemoryRoom & {
  /**
   * One round: claims due deliveries, as far as there is room, and holds them until they have landed. Unreadable ones
   * are parked and hints land at once.
   */
  claimSome: () => Promise<{ claimed: number; parked: number; more: boolean }>
  /** Renews the claims that are older than half a lease. */
  renewClaims: () => Promise<{ more: false }>
  /** True if so many wait for a batch that completing results must wait. */
  isBehind: () => boolean
  /** Resolves when no delivery is held: each has landed or was given back. */
  idle: () => Promise<void>
}

/** The memory for deliveries in flight. Stored and claimed ones have separate room. */
const roomForStored = { rows: 1250, bytes: 10 * 1024 * 1024 }
const roomForClaimed = { rows: 1000, bytes: 8 * 1024 * 1024 }
/** Claiming fewer than a hundred costs as much as claiming a hundred. */
const leastClaim = { rows: 100, bytes: 1024 * 1024 }

/**
 * A held delivery is in one of these modes:
 *
 * - RESERVED: it has room, and is being stored with a claim of this process.
 *   A delivery claimed from the queue is READY at once.
 * - READY: it is claimed by this process, and waits for a batch.
 * - LANDING: it is in a batch that is being written.
 *
 * RESERVED → READY → LANDING → no longer held. A delivery that is not stored leaves from RESERVED, and one of a flood,
 * or of a process that ends, from READY.
 */
type Held = {
  mode: 'RESERVED' | 'READY' | 'LANDING'
  room: Shares
  keyName: string
  bytes: number
  /** Set in READY and LANDING. A newer claim replaces its members in READY. */
  ready?: Ready
  claimedAtMs: number
}

/**
 * Holds the deliveries of this process: those that it has just stored, which are landed from memory, and those that it
 * claimed from the queue. If the process dies, other processes claim them when the leases end.
 */
export function createHandOver(deps: HandOverDeps): HandOver {
  const { db, time, signal, nowMs = () => performance.now() } = deps
  const fromArrivals = createShares(roomForStored)
  const fromQueue = createShares(roomForClaimed)
  const held = new Map<string, Held>()
  let lacksRoom = false
  let whenIdle: PromiseWithResolvers<void> | undefined

  const drop = (id: string) => {
    const one = held.get(id)
    if (one && held.delete(id)) one.room.remove(one.keyName, one.bytes)
  }

  const afterBatch = () => {
    if (lacksRoom && roomToClaim()) {
      lacksRoom = false
      deps.wake()
    }
    if (held.size > 0 || !batches.isIdle()) return
    whenIdle?.resolve()
    whenIdle = undefined
  }

  const batches = createBatches({
    ...deps,
    onLanding: (id) => move(held.get(id), 'READY', 'LANDING'),
    onEnded: drop,
    onWritten: afterBatch,
  })

  const hold = (id: string, given: Pick<Held, 'room' | 'keyName' | 'bytes' | 'claimedAtMs'>): Held => {
    assert(!held.has(id), 'a delivery is held once')
    const one: Held = { mode: 'RESERVED', ...given, bytes: given.bytes + rowBytes }
    one.room.add(one.keyName, one.bytes)
    held.set(id, one)
    return one
  }

  const makeReady = (one: Held, claimed: Claimed, report: Report) => {
    move(one, 'RESERVED', 'READY')
    one.ready = { claimed, landing: landingOfDelivery(deps, claimed, report) }
    batches.add(one.ready)
  }

  const roomToClaim = (): Amount | undefined => {
    const { rows, bytes } = fromQueue.held()
    const left = { rows: roomForClaimed.rows - rows, bytes: roomForClaimed.bytes - bytes }
    return left.rows >= leastClaim.rows && left.bytes >= leastClaim.bytes ? left : undefined
  }

  const holdClaimed = ({ body, ...claimed }: ClaimedWithBody, report: Report, claimedAtMs: number): void => {
    const before = held.get(claimed.deliveryId)
    if (before?.mode === 'READY' && before.ready) {
      // Its lease ended while it waited. The newer claim replaces the old one.
      Object.assign(before.ready, { claimed, landing: landingOfDelivery(deps, claimed, report) })
      before.claimedAtMs = claimedAtMs
    } else if (!before) {
      const room = { room: fromQueue, keyName: claimed.keyName, bytes: body.length, claimedAtMs }
      makeReady(hold(claimed.deliveryId, room), claimed, report)
    }
    // A RESERVED or LANDING one stays as it is. The newer claim expires.
  }

  return {
    leaseSeconds: inboxLeaseSeconds,
    reserve: ({ id, sourceName, keyName, body, report, headers }) => {
      // Claimed from the queue, it is parked.
      if (sourceOf(deps.keys(), sourceName) === undefined) return false
      // A webhook that ends a submit is claimed from the queue, which joins them.
      if (pathIn(headers).generation !== undefined) return false
      // A larger body is read back from the queue, since its parsed form takes several times its memory.
      if (signal.aborted || !report || body.length > 64 * 1024) return false
      if (held.has(id) || !fromArrivals.isOpen(keyName)) return false
      hold(id, { room: fromArrivals, keyName, bytes: body.length, claimedAtMs: nowMs() })
      return true
    },
    take: (delivery) => {
      const one = held.get(delivery.id)
      // Without an entry, the statement was abandoned and the delivery released: its lease expires.
      if (one && delivery.report) makeReady(one, claimedOnce(delivery), delivery.report)
    },
    release: ({ id }) => {
      if (held.get(id)?.mode === 'RESERVED') drop(id)
      afterBatch()
    },
    claimSome: async () => {
      const room = roomToClaim()
      if (signal.aborted || !room) {
        lacksRoom = true
        return { claimed: 0, parked: 0, more: false }
      }
      // As many as one statement lands.
      const limit = Math.min(500, room.rows)
      const claimedAtMs = nowMs()
      const rows = await claim(db, { limit, maxBytes: room.bytes, now: time() })
      const others: { row: ClaimedWithBody; parsed: Parsed | Hint }[] = []
      for (const row of rows) {
        const parsed = parseBody(sourceOf(deps.keys(), row.sourceName), row.body)
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
      const isOld = ({ claimedAtMs }: Held) => startedAtMs - claimedAtMs >= (inboxLeaseSeconds * 1000) / 2
      const old = [...held.values()].filter((one) => one.ready && isOld(one))
      const claims = old.flatMap(({ ready }) => ready?.claimed ?? [])
      // Lost claims need no handling: their landing settles nothing, and the newer claim settles the delivery.
      if (claims.length > 0) await renew(db, claims, time())
      for (const one of old) one.claimedAtMs = startedAtMs
      return { more: false }
    },
    isBehind: batches.isBehind,
    idle: () => {
      whenIdle ??= Promise.withResolvers()
      setImmediate(afterBatch)
      return whenIdle.promise
    },
  }
}

function move(one: Held | undefined, from: Held['mode'], to: Held['mode']): void {
  assert(one?.mode === from, `a delivery that becomes ${to} must be ${from}, not ${one?.mode ?? 'dropped'}`)
  one.mode = to
}
