import { setTimeout as delay } from 'node:timers/promises'
import { startLoop, type Loop } from '../../platform/loop.ts'
import { pollMs } from '../slice.ts'
import { tellOnce, type AlertDeps } from './alerts.ts'
import { readingOptions, type ReadingDeps } from './reading.ts'
import { createWatch } from './watch.ts'

export type OnCallRole = 'issues' | 'alerts'

export type OnCallRolesDeps = ReadingDeps &
  Pick<AlertDeps, 'clock' | 'logger' | 'fetch' | 'signal'> & { after: Promise<void> }

/** Starts two roles: one keeps problems as issues, the other posts notices of them to `ALERT_WEBHOOK_URL`. */
export function startOnCallRoles(deps: OnCallRolesDeps): Record<OnCallRole, Loop> {
  const { settings, after, logger, signal } = deps
  const common = { after, logger, signal }
  const alerting = { ...deps, url: settings.alertWebhookUrl, from: new URL(settings.webhookPublicUrl).host }
  // The role arrival-partitions makes its partitions first, since readers of the log would hold locks that it needs.
  const pauseAtStart = () => delay(3000, undefined, { signal }).catch(() => {})
  const alerts = startLoop({ name: 'alerts', runOnce: () => tellOnce(alerting), idleMs: pollMs, ...common })
  const watch = createWatch({ ...alerting, read: () => readingOptions(deps), onChanged: alerts.wake })
  return {
    alerts,
    issues: startLoop({ name: 'issues', runOnce: watch, idleMs: 10_000, ...common, after: after.then(pauseAtStart) }),
  }
}
