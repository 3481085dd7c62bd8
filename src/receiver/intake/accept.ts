import { afterThisTurn } from '../../platform/after-this-turn.ts'
import { withDeadline } from '../../platform/deadline.ts'
import { createShares } from '../../platform/fair-share.ts'
import { createGather } from '../../platform/gather.ts'
import type { Logger } from '../../platform/logger.ts'
import { isAboutTheRow, metALock } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import type { Delivery } from '../domain/delivery.ts'
import { storeDeliveries } from './store.ts'

export type Acceptance = 'accepted' | 'duplicate' | 'parked'

/** The delivery is not durable, so it is not acknowledged, and the provider sends it again. */
export class UnavailableError extends Error {
  override name = 'UnavailableError'
  code = 'unavailable' as const
  reason: string
  constructor(reason: string, options?: ErrorOptions) {
    super(`the delivery could not be stored: ${reason}`, options)
    this.reason = reason
  }
}

/** While one commit waits for the disk, the next statement runs. A third would only divide the rows. */
const maxFlushesInFlight = 2
/** A statement costs as much as tens of rows, so a second one beside the first begins with this many. */
const worthSecondRows = 64
/** Half of this is what a steady load adds to an answer; a flush for each few deliveries costs five times the CPU. */
const gatherMs = 10
/** One statement. Beyond this Postgres gains nothing, and a refused flush takes longer to halve. */
const maxFlushRows = 256
const maxFlushBytes = 4 * 1024 * 1024
/**
 * After so many refusals and nothing stored, a missing grant or a trigger refuses every row: halving ends. One row of
 * 256 is found by nine refusals.
 */
const maxRefusalsOfAll = 16
/** A second of a full load, and its memory. One key may fill four fifths of it (fair-share.ts). */
const maxWaiting = { rows: 5000, bytes: 64 * 1024 * 1024 }
/** Below the 5 s after which a sender may give up. */
const answerWithinMs = 4500
/** About as long as a commit takes: by then the other transaction has mostly ended. */
const storeAgainAfterMs = 20

type Waiting = {
  delivery: Delivery
  resolve: (acceptance: Acceptance) => void
  reject: (error: Error) => void
  abandoned: boolean
}

export type Acceptor = {
  /** Settles once the delivery is committed, or rejects with UnavailableError within 5 s. */
  accept: (delivery: Delivery) => Promise<Acceptance>
  waiting: () => number
}

/**
 * Room in this process for deliveries that it stores. A delivery that has room is stored with a claim of this process,
 * and is then landed from memory.
 */
export type MemoryRoom = {
  /** How long the claim lasts, unless it is renewed. */
  leaseSeconds: number
  /** False: there is no room, and any process may claim the delivery from the queue. */
  reserve: (delivery: Delivery) => boolean
  /** The reserved delivery is committed. */
  take: (delivery: Delivery) => void
  /** The reserved delivery was not stored, or was known already. */
  release: (delivery: Delivery) => void
}

export type AcceptorDeps = {
  db: Database
  logger: Logger
  handOver: MemoryRoom
  /** The time that replicas share. Postgres's own by default. */
  time?: SharedTime
  /** Called for each flush, with how many deliveries it had to leave waiting. */
  onFlush?: (flush: { deliveries: number; left: number }) => void
  /** Called when deliveries are committed that any process may claim. */
  onStored: () => void
}

/**
 * Accepts in natural batches. Deliveries that arrive while a flush is in flight go with the next one, as one statement,
 * and so do those that the process reads from its sockets in one turn. A delivery that arrives alone is written at once.
 * Those of a steady load gather for a few milliseconds, and then land together too.
 */
export function createAcceptor(deps: AcceptorDeps): Acceptor {
  let queue: Waiting[] = []
  const waitingOf = createShares(maxWaiting)
  let inFlight = 0

  const next = () => {
    inFlight -= 1
    pump()
  }

  const pump = () => {
    while (inFlight === 0 || (inFlight < maxFlushesInFlight && queue.length >= worthSecondRows)) {
      if (queue.length === 0 || !mayBegin(queue.length)) return
      const batch = takeBatch()
      if (batch.length === 0) return
      inFlight += 1
      deps.onFlush?.({ deliveries: batch.length, left: queue.length })
      // A statement that is lost with its connection may never settle. Its senders have been answered by then.
      withDeadline(flush(deps, batch, storeAgain), answerWithinMs + 500, 'a flush').then(next, (error: unknown) => {
        deps.logger.error({ err: error, deliveries: batch.length }, 'a flush did not settle, going on without it')
        for (const { delivery } of batch) deps.handOver.release(delivery)
        next()
      })
    }
  }

  const pumpAfterThisTurn = afterThisTurn(pump)
  const mayBegin = createGather({ ms: gatherMs, enoughRows: worthSecondRows, wake: pump })

  const enqueue = (waiting: Waiting) => {
    queue.push(waiting)
    waitingOf.add(waiting.delivery.keyName, waiting.delivery.body.length)
    pumpAfterThisTurn()
  }

  /** The timer of accept() answers a sender that waits too long for this. */
  const storeAgain = (group: readonly Waiting[]) => {
    setTimeout(() => group.filter(({ abandoned }) => !abandoned).forEach(enqueue), storeAgainAfterMs)
  }

  const takeBatch = (): Waiting[] => {
    const batch: Waiting[] = []
    let bytes = 0
    let taken = 0
    for (const waiting of queue) {
      if (batch.length === maxFlushRows || bytes > maxFlushBytes) break
      taken += 1
      waitingOf.remove(waiting.delivery.keyName, waiting.delivery.body.length)
      if (waiting.abandoned) continue
      bytes += waiting.delivery.body.length
      batch.push(waiting)
    }
    queue = queue.slice(taken)
    return batch
  }

  const accept = async (delivery: Delivery): Promise<Acceptance> => {
    if (!waitingOf.isOpen(delivery.keyName)) throw new UnavailableError('too_much_waiting')
    const { promise, resolve, reject } = Promise.withResolvers<Acceptance>()
    const waiting = { delivery, resolve, reject, abandoned: false }
    const timer = setTimeout(() => {
      waiting.abandoned = true
      reject(new UnavailableError('postgres_too_slow'))
    }, answerWithinMs)
    enqueue(waiting)
    try {
      return await promise
    } finally {
      clearTimeout(timer)
    }
  }
  return { accept, waiting: () => queue.length }
}

/**
 * Settles every waiting delivery of the batch, or hands it to `storeAgain`; never rejects. A statement that Postgres
 * refuses is halved, so that a delivery that a constraint or a trigger refuses does not hold up its neighbours.
 */
async function flush(
  deps: AcceptorDeps,
  batch: readonly Waiting[],
  storeAgain: (group: readonly Waiting[]) => void,
): Promise<void> {
  const parts = [batch]
  const failed: { part: readonly Waiting[]; error: unknown }[] = []
  let refusals = 0
  let isAnyStored = false
  for (let part = parts.pop(); part !== undefined; part = parts.pop()) {
    try {
      await storePart(deps, part, storeAgain)
      isAnyStored = true
    } catch (error) {
      refusals += 1
      const isWorthHalving = isAnyStored || refusals <= maxRefusalsOfAll
      if (part.length > 1 && isWorthHalving && isAboutTheRow(error) && !metALock(error)) {
        const half = Math.ceil(part.length / 2)
        parts.push(part.slice(half), part.slice(0, half))
        continue
      }
      for (const { reject } of part) reject(new UnavailableError('postgres_failed', { cause: error }))
      failed.push({ part, error })
    }
  }
  const [first] = failed
  if (!first) return
  // One line for the batch: in an outage there are many deliveries.
  deps.logger.error(
    { err: first.error, deliveries: failed.reduce((sum, { part }) => sum + part.length, 0) },
    'deliveries could not be stored and were not acknowledged',
  )
}

/** Stores deliveries in one statement and answers their senders. Throws, with nothing stored, where Postgres fails. */
async function storePart(
  deps: AcceptorDeps,
  part: readonly Waiting[],
  storeAgain: (group: readonly Waiting[]) => void,
): Promise<void> {
  const byId = Map.groupBy(part, ({ delivery }) => delivery.id)
  // In the order of the key, so that two flushes can never wait for each other.
  const rows = [...byId.keys()].sort().flatMap((id) => signedLive(byId.get(id) ?? [])?.delivery ?? [])
  const handedOver = new Set(rows.filter((row) => deps.handOver.reserve(row)))
  try {
    const stored = await storeDeliveries(deps.db, rows, {
      ...(deps.time && { now: deps.time() }),
      claimed: { ids: new Set([...handedOver].map(({ id }) => id)), leaseSeconds: deps.handOver.leaseSeconds },
    })
    for (const [id, group] of byId) {
      if (stored.contended.has(id)) {
        storeAgain(group)
        continue
      }
      group.forEach(({ delivery, resolve }, at) => {
        if (at > 0 || !stored.isNew.has(id)) resolve('duplicate')
        else resolve(delivery.parkReason === undefined ? 'accepted' : 'parked')
      })
    }
    for (const row of handedOver) {
      if (stored.isNew.has(row.id)) deps.handOver.take(row)
      else deps.handOver.release(row)
    }
    const isToClaim = rows.some(
      (row) =>
        stored.requeued.has(row.id) ||
        (stored.isNew.has(row.id) && row.parkReason === undefined && !handedOver.has(row)),
    )
    if (isToClaim) deps.onStored()
  } catch (error) {
    for (const row of handedOver) deps.handOver.release(row)
    throw error
  }
}

/** Several arrived together under one id, signed with different keys: a live key may vouch for any request. */
function signedLive(group: readonly Waiting[]): Waiting | undefined {
  return group.find(({ delivery }) => delivery.environment === 'live') ?? group[0]
}
