import assert from 'node:assert/strict'
import { createShares, type Amount, type Shares } from '../../platform/fair-share.ts'
import { parseBody, type Delivery } from '../domain/delivery.ts'
import { sourceOf } from '../domain/keys.ts'
import type { Report } from '../domain/report.ts'
import { requestIdOf } from '../domain/request-id.ts'
import { pathIn } from '../domain/webhook-path.ts'
import { createBatches, type BatchesDeps, type Pending } from './batches.ts'
import { landClaimedHint } from './hints.ts'
import { claim, claimedOnce, inboxLeaseSeconds, renew, type Claimed, type HeldDelivery } from './inbox.ts'
import { parkUnreadable, type WorkerDeps } from './land-or-put-off.ts'
import { landingOfDelivery, rowBytes } from './row-to-write.ts'

/*
 * The files of this folder, in the order in which a delivery passes them:
 *
 *   hand-over.ts        holds deliveries that were just stored, or claimed from the queue
 *   inbox.ts            the SQL of the queue: claim, renew, return, retry, park
 *   row-to-write.ts     turns the report of a delivery into a landing, the row to write
 *   batches.ts          puts landings into batches, one per request, and gives floods later times
 *   land-or-put-off.ts  lands a batch; puts off or parks deliveries that Postgres refuses
 *   two-statements.ts   composes and runs the two statements, of verdict.ts (which result wins), flags.ts (what is
 *                       flagged and parked) and writes.ts
 *
 * Besides: hints.ts for webhooks that name a job without its end, replay.ts and requeue.ts to process deliveries again,
 * depth.ts for the size of the queue.
 */

export type HandOverDeps = WorkerDeps &
  Pick<BatchesDeps, 'rest' | 'signal' | 'onBatch'> & {
    /** Called when a round of claiming had no room, and there is room again. */
    wake: () => void
    /** The time for renewals of leases. Tests replace it. */
    nowMs?: () => number
  }

export type HandOver = {
  /** How long a claim made at storing lasts. */
  leaseSeconds: number
  /** Reserves room for a delivery that is about to be stored. False: it must be stored without a claim. */
  reserve: (delivery: Delivery) => boolean
  /** Takes the reserved delivery after it was stored. */
  take: (delivery: Delivery) => void
  /** Frees the room of a reserved delivery that was not stored, or was known. */
  release: (delivery: Pick<Delivery, 'id'>) => void
  /** One round: claims due deliveries, as far as there is room. Does not wait for their landing. */
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
  /** Set in READY and LANDING. */
  waiting?: Pending
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

  const makeReady = (one: Held, claimed: HeldDelivery, report: Report) => {
    move(one, 'RESERVED', 'READY')
    one.waiting = { ready: { claimed, landing: landingOfDelivery(deps, claimed, report) } }
    batches.add(one.waiting)
  }

  const roomToClaim = (): Amount | undefined => {
    const { rows, bytes } = fromQueue.held()
    const left = { rows: roomForClaimed.rows - rows, bytes: roomForClaimed.bytes - bytes }
    return left.rows >= leastClaim.rows && left.bytes >= leastClaim.bytes ? left : undefined
  }

  /** Holds a claimed delivery. Returns true if it was parked instead. */
  const holdClaimed = async ({ body, ...one }: Claimed, claimedAtMs: number): Promise<boolean> => {
    const parsed = parseBody(sourceOf(deps.keys(), one.sourceName), body)
    if (!parsed.ok) {
      await parkUnreadable(deps, one, parsed.reason)
      return true
    }
    const { generation: idempotencyKey, sourceName } = one
    if (idempotencyKey !== undefined) {
      const jobId = parsed.report?.jobId ?? ('jobId' in parsed ? parsed.jobId : '')
      await deps.join?.({ ...requestIdOf(sourceName, jobId), idempotencyKey, sourceName })
    }
    if (parsed.report === undefined) {
      await landClaimedHint(deps, one, parsed)
      return false
    }
    const before = held.get(one.deliveryId)
    if (before?.mode === 'READY' && before.waiting) {
      // Its lease ended while it waited. The newer claim replaces the old one.
      before.waiting.ready = { claimed: one, landing: landingOfDelivery(deps, one, parsed.report) }
      before.claimedAtMs = claimedAtMs
    } else if (!before) {
      const room = { room: fromQueue, keyName: one.keyName, bytes: body.length, claimedAtMs }
      makeReady(hold(one.deliveryId, room), one, parsed.report)
    }
    // A RESERVED or LANDING one stays as it is. The newer claim expires.
    return false
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
      let parked = 0
      for (const row of rows) if (await holdClaimed(row, claimedAtMs)) parked += 1
      const bytes = rows.reduce((sum, { body }) => sum + body.length, 0)
      return { claimed: rows.length, parked, more: rows.length === limit || bytes >= room.bytes }
    },
    renewClaims: async () => {
      const startedAtMs = nowMs()
      const isOld = ({ claimedAtMs }: Held) => startedAtMs - claimedAtMs >= (inboxLeaseSeconds * 1000) / 2
      const old = [...held.values()].filter((one) => one.waiting && isOld(one))
      const claims = old.flatMap(({ waiting }) => waiting?.ready.claimed ?? [])
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
