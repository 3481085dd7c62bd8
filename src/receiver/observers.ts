import type { Logger } from '../runtime/logger.ts'
import type { ArchiverDeps } from './archiving/archiver.ts'
import type { ArrivalLogDeps } from './intake/arrival-log.ts'
import type { KnownSenders } from './intake/known-senders.ts'
import type { WorkerDeps } from './landing/worker.ts'
import type { ReceiverMetrics } from './metrics.ts'

type LandedDeps = { metrics: ReceiverMetrics; clock: () => Date; wakeFeed: () => void }

/** Counts what landed, and how long after its arrival, and has it put into the feed. */
export function noteLanded({ metrics, clock, wakeFeed }: LandedDeps): WorkerDeps['onLanded'] {
  return ({ landing, outcome, receivedAt }) => {
    if (outcome !== 'landed') return
    wakeFeed()
    metrics.landed.inc({ status: landing.status, source: landing.source })
    if (receivedAt) metrics.landingSeconds.observe(Math.max(0, (clock().getTime() - receivedAt.getTime()) / 1000))
  }
}

/** Counts what became of copies of media, and has those that are there put into the feed. */
export function noteCopied({ metrics, wakeFeed }: Omit<LandedDeps, 'clock'>): ArchiverDeps['onCopied'] {
  return (outcome, bytes) => {
    metrics.archiveCopies.inc({ outcome })
    metrics.archivedBytes.inc(bytes)
    if (outcome === 'archived') wakeFeed()
  }
}

/** What authentic deliveries tell of their senders and keys. */
export function noteAuthentic(senders: KnownSenders, metrics: ReceiverMetrics): NonNullable<ArrivalLogDeps['onWritten']> {
  return ({ keyName, remote, arrivedAt: at, outcome, bytes = 0 }) => {
    if (keyName === undefined) return
    senders.note({ keyName, remote, at })
    if (outcome === 'accepted' || outcome === 'parked') metrics.storedBytes.inc({ key_name: keyName }, bytes)
  }
}

/** One line for all the arrivals that have none of their own. */
export function logFolded(logger: Logger): ArrivalLogDeps['onFolded'] {
  return ({ arrivals, ...cause }) => logger.info({ ...cause, left_out: arrivals }, 'too many refused webhooks: lines were left out')
}
