import { afterThisTurn } from '../../platform/after-this-turn.ts'
import { withDeadline } from '../../platform/deadline.ts'
import { createShares } from '../../platform/fair-share.ts'
import { createGather, rowsForSecondStatement } from '../../platform/gather.ts'
import type { Logger } from '../../platform/logger.ts'
import { faultOf } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import type { Delivery, HandOver, Reservation } from '../domain/delivery.ts'
import { distinct, storeDeliveries } from './store.ts'
import { unavailable, type Acceptance } from './webhook-answers.ts'

/** The limit of one statement. More rows save little, and a refused flush takes longer to halve. */
const maxFlushRows = 256
const maxFlushBytes = 4 * 1024 * 1024
/**
 * After this many refusals with nothing stored, every row is probably refused, for example by a missing grant. Halving
 * then ends. Finding one bad row of 256 takes nine refusals.
 */
const maxRefusals = 16
/** About a second of full load. One key may fill four fifths of it (fair-share.ts). */
const maxWaiting = { rows: 5000, bytes: 64 * 1024 * 1024 }
/**
 * Storing is given up after this time, and Postgres ends its statement. Every delivery is answered before
 * (docs/guarantees.md); the provider waits 10 s. The lease of the deliveries that are stored is longer
 * (`inboxLeaseSeconds` of landing/inbox.ts).
 */
export const flushSeconds = 5
/** From the verified body to the answer. */
const answerWithinMs = flushSeconds * 1000 - 500

type Waiting = {
  delivery: Delivery
  resolve: (acceptance: Acceptance) => void
  reject: (error: Error) => void
  abandoned: boolean
}

export type Acceptor = {
  /** Settles once the delivery is committed, or rejects with a Refusal (503) within 5 s of this call. */
  accept: (delivery: Delivery) => Promise<Acceptance>
}

export type AcceptorDeps = {
  db: Database
  logger: Logger
  handOver: HandOver
  /** The time that replicas share. Postgres's own by default. */
  time?: SharedTime
  /** Called for each flush, with the number of deliveries still waiting after it. */
  onFlush?: (flush: { deliveries: number; left: number }) => void
  /** Called when deliveries were committed that any process may claim. */
  onStored: () => void
}

/**
 * Creates the acceptor, which stores deliveries in batches without a fixed size. Deliveries that arrive during a flush
 * form the next one, and so do those that the process reads from its sockets in one turn. A delivery that arrives alone
 * is written at once. Deliveries of a steady load gather for a few milliseconds, and then also land together.
 */
export function createAcceptor(deps: AcceptorDeps): Acceptor {
  let queue: Waiting[] = []
  const waitingOf = createShares(maxWaiting)
  let flushes = 0

  const ended = () => {
    flushes -= 1
    pump()
  }
  const pump = () => {
    // While one commit waits for the disk, the next statement runs. A third would only split the rows.
    while (flushes === 0 || (flushes < 2 && queue.length >= rowsForSecondStatement)) {
      if (queue.length === 0 || !mayBegin(queue.length)) return
      const batch = takeFlush()
      if (batch.length === 0) return
      flushes += 1
      deps.onFlush?.({ deliveries: batch.length, left: queue.length })
      flush({ ...deps, storeAgain }, batch).then(ended, ended)
    }
  }

  const pumpAfterThisTurn = afterThisTurn(pump)
  // Gathering delays answers under a steady load by half of this. A flush for every few deliveries would cost far more
  // CPU.
  const mayBegin = createGather({ ms: 10, enoughRows: rowsForSecondStatement, wake: pump })

  const enqueue = (waiting: Waiting) => {
    queue.push(waiting)
    waitingOf.add(waiting.delivery.keyName, waiting.delivery.body.length)
    pumpAfterThisTurn()
  }

  /** Enqueues a group again after a pause. The timer of accept() still bounds its wait. */
  const storeAgain = (group: readonly Waiting[]) => {
    // About the time of a commit, after which the other transaction has usually ended.
    setTimeout(() => group.filter(({ abandoned }) => !abandoned).forEach(enqueue), 20)
  }

  const takeFlush = (): Waiting[] => {
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
    if (!waitingOf.isOpen(delivery.keyName)) throw unavailable('too_much_waiting')
    const { promise, resolve, reject } = Promise.withResolvers<Acceptance>()
    const waiting = { delivery, resolve, reject, abandoned: false }
    const timer = setTimeout(() => {
      waiting.abandoned = true
      reject(unavailable('postgres_too_slow'))
    }, answerWithinMs)
    enqueue(waiting)
    try {
      return await promise
    } finally {
      clearTimeout(timer)
    }
  }
  return { accept }
}

/** `storeAgain`: enqueues deliveries that another transaction holds at this moment. */
type FlushDeps = AcceptorDeps & { storeAgain: (group: readonly Waiting[]) => void }

/**
 * Answers for every delivery of the batch, or passes it to `storeAgain`. Never rejects. A refused statement is halved,
 * so that a delivery that a constraint or trigger refuses does not block its neighbours.
 */
async function flush(deps: FlushDeps, batch: readonly Waiting[]): Promise<void> {
  const parts = [batch]
  let unstored = 0
  let firstError: unknown
  let refusals = 0
  let isAnyStored = false
  for (let part = parts.pop(); part !== undefined; part = parts.pop()) {
    // After a slow part, every sender has its 503.
    if (part.every(({ abandoned }) => abandoned)) continue
    try {
      await storePart(deps, part)
      isAnyStored = true
    } catch (error) {
      refusals += 1
      const isWorthHalving = isAnyStored || refusals <= maxRefusals
      if (part.length > 1 && isWorthHalving && faultOf(error) === 'row') {
        const half = Math.ceil(part.length / 2)
        parts.push(part.slice(half), part.slice(0, half))
        continue
      }
      // Also for a row that is refused alone. It is valid, so something in this database refuses it, such as a
      // trigger of an operator. The alert and the line below report it. The provider sends it again, six times in all;
      // then only a poll brings the result, of a tracked request.
      for (const { reject } of part) reject(unavailable('postgres_failed', { cause: error }))
      unstored += part.length
      firstError ??= error
    }
  }
  if (unstored === 0) return
  // One line per batch, since an outage affects many deliveries.
  deps.logger.error(
    { err: firstError, deliveries: unstored },
    'deliveries could not be stored and were not acknowledged',
  )
}

/**
 * Stores deliveries, answers their senders, and hands over the new ones. Throws if Postgres refuses the
 * statement, with nothing stored. Also throws if the connection is lost or Postgres takes too long: the statement may
 * be committed then, and the sender's next attempt is a duplicate.
 */
async function storePart({ db, time, logger, handOver, onStored, storeAgain }: FlushDeps, part: readonly Waiting[]) {
  const byId = Map.groupBy(part, ({ delivery }) => delivery.id)
  const rows = distinct(part.map(({ delivery }) => delivery))
  const reserved = new Map<string, Reservation>()
  let stored: Awaited<ReturnType<typeof storeDeliveries>>
  try {
    for (const row of rows) {
      const reservation = handOver.reserve(row)
      if (reservation) reserved.set(row.id, reservation)
    }
    const claimed = { ids: reserved, leaseSeconds: handOver.leaseSeconds }
    // A statement that is lost with its connection may never end.
    const storing = storeDeliveries(db, rows, { now: time?.(), claimed, logger })
    stored = await withDeadline(storing, flushSeconds * 1000, 'storing deliveries')
  } catch (error) {
    for (const { release } of reserved.values()) release()
    throw error
  }
  for (const [id, group] of byId) {
    const answer = stored.get(id)
    if (answer === 'undecided') storeAgain(group)
    // The first sender of a delivery is answered "accepted", even if the key of another sender is stored.
    else group.forEach(({ delivery, resolve }, at) => resolve(outcomeOf(delivery, at === 0 && answer === 'new')))
  }
  for (const [id, { makeReady, release }] of reserved) {
    if (stored.get(id) === 'new') makeReady()
    else release()
  }
  const isToClaim = ({ id, parsed }: Delivery) => {
    const answer = stored.get(id)
    return answer === 'requeued' || (answer === 'new' && parsed.kind !== 'unreadable' && !reserved.has(id))
  }
  if (rows.some(isToClaim)) onStored()
}

function outcomeOf({ parsed }: Delivery, isNew: boolean): Acceptance {
  if (!isNew) return 'duplicate'
  return parsed.kind === 'unreadable' ? 'parked' : 'accepted'
}
