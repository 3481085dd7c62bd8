import { setTimeout as delay } from 'node:timers/promises'
import { pollMs } from '../slice.ts'
import { tellOnce, type AlertDeps } from './alerts.ts'
import { readingOptions, type ReadingDeps } from './reading.ts'
import { createWatch } from './watch.ts'

type OnCallRolesDeps = ReadingDeps &
  Pick<AlertDeps, 'clock' | 'logger' | 'fetch' | 'signal'> & { after: Promise<void>; wakeAlerts: () => void }

/** Returns two roles: one keeps problems as issues, the other posts notices of them to `ALERT_WEBHOOK_URL`. */
export function onCallRoles(deps: OnCallRolesDeps) {
  const { settings, after, signal, wakeAlerts } = deps
  const alerting = { ...deps, url: settings.alertWebhookUrl, from: new URL(settings.webhookPublicUrl).host }
  // The role arrival-partitions makes its partitions first, since readers of the log would hold locks that it needs.
  const pauseAtStart = () => delay(3000, undefined, { signal }).catch(() => {})
  const watch = createWatch({ ...alerting, read: () => readingOptions(deps), onChanged: wakeAlerts })
  return {
    alerts: { runOnce: () => tellOnce(alerting), idleMs: pollMs },
    issues: { runOnce: watch, idleMs: 10_000, after: after.then(pauseAtStart) },
  }
}
