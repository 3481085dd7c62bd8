import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import type { Keys } from '../domain/keys.ts'
import type { RequestIds } from '../domain/request-id.ts'
import type { DeliveryTraces } from '../domain/trace.ts'
import type { LandingOutcome } from './effects.ts'
import type { MediaHosts, ReportToLand } from './report-to-land.ts'

/** The dependencies of landing, shared by the inbox, the reconciler and replays. */
export type LandingDeps = {
  db: Database
  keys: () => Keys
  mediaHosts: MediaHosts
  /** The time that replicas share. */
  time: SharedTime
  logger: Logger
  onProcessed: (processed: { report: ReportToLand; outcome: LandingOutcome; receivedAt: Date | undefined }) => void
  /** Ends the submit that the URL of a webhook names. */
  join?: ((joining: RequestIds & { idempotencyKey: string; sourceName: string | null }) => Promise<void>) | undefined
  /** Called after a hint that the job may have ended: a poll may be due. */
  onHint?: ((keyName: string) => void) | undefined
  traces?: DeliveryTraces | undefined
}
