import type { Registry } from 'prom-client'
import type { Logger } from '../platform/logger.ts'
import type { Loop } from '../platform/loop.ts'
import type { Database, Executor } from '../platform/postgres/postgres.ts'
import type { Pressure } from '../platform/pressure.ts'
import type { Keys } from './domain/keys.ts'
import type { Problem } from './domain/problem.ts'
import type { Fetcher } from './fetching/fetcher.ts'
import type { ReceiverSettings } from './settings.ts'

/** Roles look for work this often without a wake: for retries, and for the work of dead replicas. */
export const pollMs = 1000

export type SliceDeps = {
  settings: ReceiverSettings
  db: Database
  keys: () => Keys
  clock: () => Date
  logger: Logger
  /** Fetches results within the keys' quota. */
  fetchResult: Fetcher
  /** Acknowledging has priority: a slice's rounds pause while deliveries wait. */
  pressure: Pressure
  registry: Registry
  /** Wakes the role that assigns positions in the feed. */
  wakeFeed: () => void
  /** Resolves when the schema is up to date. No round begins before. */
  after: Promise<void>
  /** Cuts the calls in flight. */
  cut: AbortSignal
  /** After it aborts, no round begins. */
  signal: AbortSignal
}

export type RunningSlice = {
  /** The role of the slice; missing while its settings turn it off. */
  loop?: Loop
  /** Called after changes got positions in the feed. */
  onSequenced?: () => void
  /** Resolves after the signal, once nothing of the slice is under way. */
  idle: () => Promise<void>
}

export type PruneDeps = { db: Database; settings: ReceiverSettings; now: Date; signal: AbortSignal }

/**
 * An optional capability of the receiver: one folder with its tables, its background role, its API and its page.
 * slices.ts lists them; the core knows none of them by name.
 */
export type Slice = {
  name: string
  /** Registers the slice's metrics and starts its background role, which is loaded only then. */
  start: (deps: SliceDeps) => Promise<RunningSlice>
  /** Returns the slice's present problems, for issues and the first page. Runs in the transaction of another read. */
  problems: (
    tx: Executor,
    at: { settings: Pick<ReceiverSettings, 'mediaArchive' | 'retentionDays'>; now: Date },
  ) => Promise<Problem[]>
  /** Deletes rows beyond the slice's own retention. Returns their number. */
  prune?: (deps: PruneDeps) => Promise<number>
}
