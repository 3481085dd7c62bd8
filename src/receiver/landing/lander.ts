import { setTimeout as delay } from 'node:timers/promises'
import { afterThisTurn } from '../../platform/after-this-turn.ts'
import { withDeadline } from '../../platform/deadline.ts'
import { isAboutTheRow } from '../../platform/postgres/errors.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import type { Notification } from '../../wire/schemas.ts'
import { parseNotification, type Delivery } from '../domain/delivery.ts'
import { createHolding, heldOnce } from './holding.ts'
import { claim } from './inbox.ts'
import { landingOfDelivery } from './landing.ts'
import { failurePause, returnClaims } from './returning.ts'
import { bytesOf } from './waves.ts'
import { landAll, parkMisunderstood, type HeldDelivery, type Landed, type Ready, type WorkerDeps } from './worker.ts'

export type LanderDeps = WorkerDeps & {
  /** Rests after so much work, as long as acknowledging needs the machine. */
  rest: (workedMs: number, signal: AbortSignal) => Promise<void>
  /** Called when there is room again for what a round of claiming had to leave. */
  wake: () => void
  /** Nothing more is taken after this. */
  signal: AbortSignal
  /** Gets what each batch came to. */
  onBatch?: (came: Landed | Error) => void
}

export type Lander = {
  /** Room for a delivery that is about to be stored; false: it is stored for whoever claims it. */
  reserve: (delivery: Delivery) => boolean
  /** When the claim of what is stored now ends. */
  claimedUntil: () => Date
  /** What had room is stored, claimed once until then. */
  take: (delivery: Delivery, claimedUntil: Date) => void
  /** What had room was not stored, or known before. */
  release: (delivery: Pick<Delivery, 'id'>) => void
  /** One round: claims due deliveries, as far as there is room. It does not wait until they have landed. */
  claimSome: () => Promise<{ claimed: number; parked: number; more: boolean }>
  /** Renews the claims that are held for longer than usual. */
  renewClaims: () => Promise<{ more: false }>
  /** Whether more is ready than one batch writes: completing results waits meanwhile. */
  isBehind: () => boolean
  /** Settles when nothing is held any more: all of it is written, or given back. */
  idle: () => Promise<void>
}

/** Above it a body is read back from the queue instead: what is made of it is several times as much. */
const maxHandedOverBytes = 64 * 1024
const maxClaimRows = 500
const maxBatchRows = 500
/** While one batch is written the next is sent, once it is worth a statement of its own: a small one costs as much as ten rows. */
const maxLandings = 2
const worthSecondRows = 50
/** So much waits for its batch only when the machine cannot keep up. */
const behind = { rows: 250, bytes: 16 * 1024 * 1024 }
const landingDeadlineMs = 30_000

/**
 * Lands what this process holds: deliveries that it has just stored, which are
 * handed over in memory, and those that it claims from the queue: what there was
 * no room for, what failed before, and what a dead process held.
 *
 * What is ready is written in natural batches, like accepting: all that became
 * ready while a batch is being written goes with the next one.
 */
export function createLander(deps: LanderDeps): Lander {
  const { db, clock, logger, signal } = deps
  const holding = createHolding({ db, clock })
  let refusedRoom = false
  const inFlight = new Set<string>()
  let queue: Ready[] = []
  let queuedBytes = 0
  let landings = 0
  let failures = 0
  let batchRows = maxBatchRows
  let whenIdle: PromiseWithResolvers<void> | undefined

  const isBehind = () => queue.length >= behind.rows || queuedBytes >= behind.bytes

  const hold = (claimed: HeldDelivery, notification: Notification, claimedUntil: Date) => {
    const landing = landingOfDelivery(deps, claimed, notification)
    holding.hold(claimed, claimedUntil)
    queue.push({ claimed, landing })
    queuedBytes += bytesOf(landing)
    pumpAfterThisTurn()
  }

  const pumpAfterThisTurn = afterThisTurn(() => pump())

  const next = () => {
    landings -= 1
    pump()
  }

  const pump = () => {
    while (landings === 0 || (landings < maxLandings && queue.length >= worthSecondRows)) {
      const batch = takeBatch()
      if (batch.length === 0) break
      landings += 1
      landBatch(batch).then(next, (error: unknown) => {
        logger.error({ err: error, deliveries: batch.length }, 'a batch came to no end, going on without it')
        next()
      })
    }
    if (refusedRoom && holding.room()) {
      refusedRoom = false
      deps.wake()
    }
    if (holding.isEmpty() && landings === 0 && queue.length === 0) {
      whenIdle?.resolve()
      whenIdle = undefined
    }
  }

  /** No request is written by two batches at a time: each would wait for the other's rows. */
  const takeBatch = (): Ready[] => {
    const batch: Ready[] = []
    const left: Ready[] = []
    for (const one of queue) {
      if (batch.length < batchRows && !inFlight.has(one.landing.requestId)) batch.push(byItsClaim(one))
      else left.push(one)
    }
    queue = left
    for (const { landing } of batch) queuedBytes -= bytesOf(landing)
    for (const { landing } of batch) inFlight.add(landing.requestId)
    return batch
  }

  /**
   * The lease may have ended, and this process have claimed it again: only the last claim settles. Where another key has
   * taken over meanwhile, this landing is judged by the old one: it settles nothing, and whoever claims next lands it.
   */
  const byItsClaim = (one: Ready): Ready => {
    const { delivery } = one.landing
    const claimed = holding.asHeld(one.claimed)
    if (!delivery || claimed.claims === one.claimed.claims || claimed.environment !== one.claimed.environment)
      return one
    return { ...one, claimed, landing: { ...one.landing, delivery: { ...delivery, claims: claimed.claims } } }
  }

  const landBatch = async (batch: readonly Ready[]): Promise<void> => {
    const started = performance.now()
    const left = new Map(batch.map(({ claimed }) => [claimed.deliveryId, claimed]))
    // At once, so that its time is not taken for a lease that is to be renewed.
    const onReturned = (id: string) => {
      if (left.delete(id)) holding.letGo(id)
    }
    let isWritten = false
    const cut = new AbortController()
    try {
      const landed = await withDeadline(
        landAll({ ...deps, onReturned, cut: cut.signal }, batch),
        landingDeadlineMs,
        'landing a batch',
      )
      deps.onBatch?.(landed)
      isWritten = true
      failures = 0
      batchRows = Math.min(maxBatchRows, batchRows * 2)
    } catch (error) {
      // Beyond its deadline it would go on beside whoever lands the same next.
      cut.abort()
      deps.onBatch?.(error instanceof Error ? error : new Error(String(error)))
      failures += 1
      // One that is too much for Postgres as a whole may go in parts.
      batchRows = Math.max(1, Math.floor(batchRows / 2))
      logger.error({ err: error, deliveries: batch.length, failures }, 'a batch could not be landed and is given back')
      // A process that ends tries nothing in parts: all that is ready goes back with it, however much that is.
      const unwritten = signal.aborted ? queue.splice(0) : []
      for (const { landing } of unwritten) queuedBytes -= bytesOf(landing)
      const ended = unwritten.map(({ claimed }) => claimed)
      const returned = [...left.values(), ...ended].map(holding.asHeld)
      await returnClaims(deps, returned, { error, isAlone: batch.length === 1 })
      for (const { deliveryId } of ended) holding.letGo(deliveryId)
    }
    for (const id of left.keys()) holding.letGo(id)
    left.clear()
    for (const { landing } of batch) inFlight.delete(landing.requestId)
    if (isWritten) await deps.rest(performance.now() - started, signal)
    else await pauseFor(jitteredPauseMs(failures, failurePause, Math.random))
  }

  const pauseFor = (ms: number) => delay(ms, undefined, { signal }).catch(() => {})

  return {
    reserve: ({ id, keyName, body: { length: bytes }, notification }) =>
      !signal.aborted &&
      notification !== undefined &&
      bytes <= maxHandedOverBytes &&
      holding.reserve(id, { keyName, bytes }),
    claimedUntil: holding.claimedUntil,
    take: (delivery, claimedUntil) => {
      const { id, notification } = delivery
      // Given up as lost meanwhile: its lease ends by itself.
      if (notification && holding.isReserved(id)) hold(heldOnce(delivery), notification, claimedUntil)
    },
    release: ({ id }) => holding.unreserve(id),
    claimSome: async () => {
      const room = holding.room()
      if (signal.aborted || !room) {
        refusedRoom = true
        return { claimed: 0, parked: 0, more: false }
      }
      const limit = Math.min(maxClaimRows, room.rows)
      const claimedUntil = holding.claimedUntil()
      const claimed = await claim(db, { limit, maxBytes: room.bytes, now: clock() })
      let parked = 0
      let bytes = 0
      for (const { body, ...one } of claimed) {
        bytes += body.length
        if (holding.holdAgain(one, claimedUntil)) continue
        const parsed = parseNotification(body)
        if (parsed.ok) {
          holding.add(one.deliveryId, { keyName: one.keyName, bytes: body.length })
          hold(one, parsed.notification, claimedUntil)
        } else {
          parked += 1
          // Its own row is to blame where Postgres refuses that: its lease ends, and the others are held meanwhile.
          await parkMisunderstood(deps, one, parsed.reason).catch((error: unknown) => {
            if (!isAboutTheRow(error)) throw error
            logger.error(
              { err: error, delivery_id: one.deliveryId },
              'a delivery could not be parked, it is tried again when its lease ends',
            )
          })
        }
      }
      return { claimed: claimed.length, parked, more: claimed.length === limit || bytes >= room.bytes }
    },
    renewClaims: holding.renewClaims,
    isBehind,
    idle: () => {
      whenIdle ??= Promise.withResolvers()
      pumpAfterThisTurn()
      return whenIdle.promise
    },
  }
}
