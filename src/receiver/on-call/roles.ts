import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from '../../platform/logger.ts'
import { startLoop, type FailingRole, type Loop } from '../../platform/loop.ts'
import type { GuessLimit } from '../../platform/pages/guess-limit.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import type { Keys } from '../domain/keys.ts'
import { silentAfterSeconds } from '../reconciling/reconcile-runs.ts'
import type { ReceiverSettings } from '../settings.ts'
import { pollMs, type Slice } from '../slice.ts'
import { tellOnce } from './alerts.ts'
import { readingOptions } from './reading.ts'
import { createWatch } from './watch.ts'

export type OnCallRole = 'issues' | 'alerts'

export type OnCallRolesDeps = {
  settings: ReceiverSettings
  db: Database
  keys: () => Keys
  clock: () => Date
  time: SharedTime
  logger: Logger
  guesses: GuessLimit
  slices: readonly Slice[]
  fetch: typeof globalThis.fetch
  failingRoles: () => FailingRole[]
  after: Promise<void>
  signal: AbortSignal
}

/** Starts two roles: one keeps problems as issues, the other posts notices of them to `ALERT_WEBHOOK_URL`. */
export function startOnCallRoles(deps: OnCallRolesDeps): Record<OnCallRole, Loop> {
  const { settings, db, keys, clock, time, logger, guesses, slices, fetch, failingRoles, after, signal } = deps
  const common = { after, logger, signal }
  const from = new URL(settings.webhookPublicUrl).host
  const alerting = { db, clock, time, logger, fetch, url: settings.alertWebhookUrl, from, signal }
  const known = {
    settings,
    background: { silentAfterSeconds: silentAfterSeconds(settings.reconcileCron), guesses, failingRoles },
    keys,
    db,
    time,
    startedAt: clock(),
    slices,
  }
  // The role arrival-partitions makes its partitions first, since readers of the log would hold locks that it needs.
  const pauseAtStart = () => delay(3000, undefined, { signal }).catch(() => {})
  const alerts = startLoop({ name: 'alerts', runOnce: () => tellOnce(alerting), idleMs: pollMs, ...common })
  const watch = createWatch({ ...alerting, read: () => readingOptions(known), onChanged: alerts.wake })
  return {
    alerts,
    issues: startLoop({ name: 'issues', runOnce: watch, idleMs: 10_000, ...common, after: after.then(pauseAtStart) }),
  }
}
