import type { SliceWithPages } from '../console/slice-pages.ts'
import { maxCounted } from '../domain/limits.ts'
import type { Problem } from '../domain/problem.ts'
import { clockTime, count } from '../on-call/figures.ts'
import type { ReceiverSettings } from '../settings.ts'
import { troubledSubscriptions, type Subscription } from './list-subscriptions.ts'

export const subscriptions: SliceWithPages = {
  name: 'subscriptions',
  start: async (deps) => (await import('./role.ts')).startSubscribing(deps),
  problems: async (tx, at) => subscriptionProblems(await troubledSubscriptions(tx), at),
  internal: async () => ({
    operations: (await import('./subscriptions-api.ts')).subscriptionOperations,
    pages: (await import('./subscriptions-page.ts')).subscriptionsRoutes,
  }),
}

type Troubled = Pick<Subscription, 'name' | 'retry_hours' | 'failing_since' | 'last_error' | 'stop_reason' | 'backlog'>

/** Returns the problems of subscriptions. Stopped ones need an operator; failing ones are retried. */
export function subscriptionProblems(
  troubled: readonly Troubled[],
  { settings: { retentionDays }, now }: { settings: Pick<ReceiverSettings, 'retentionDays'>; now: Date },
): Problem[] {
  return troubled.map((one) => {
    const about = { href: '/subscriptions', affected: [one.name] }
    const why = one.last_error === null ? '' : ` (${one.last_error})`
    if (one.stop_reason === 'position_expired') {
      const text =
        `The subscription “${one.name}” stopped: ` +
        `${one.last_error ?? 'the changes after its position are no longer kept'}. Let its service read the ` +
        'results anew, then resume it with the oldest change that is kept.'
      return { severity: 'critical', text, cause: `subscription_stopped:${one.name}`, ...about }
    }
    if (one.stop_reason === 'retries_spent') {
      const text =
        `The subscription “${one.name}” stopped after ${one.retry_hours} h of failures${why}. No changes are ` +
        'posted to it. Resume it when its service answers: it continues at its position.'
      return { severity: 'critical', text, cause: `subscription_stopped:${one.name}`, ...about }
    }
    const since = one.failing_since === null ? '' : ` since ${clockTime(one.failing_since, now)}`
    const wait = `${one.backlog === maxCounted ? 'At least ' : ''}${count(one.backlog, 'change waits', 'changes wait')}`
    const text =
      `Changes cannot be posted to the subscription “${one.name}”${since}${why}. ${wait}, and posts are retried. ` +
      `Check the service. After ${one.retry_hours} h of failures the subscription stops, and its changes wait until an operator ` +
      `resumes it, for at most ${retentionDays} days (RETENTION_DAYS).`
    return { severity: 'warning', text, cause: `subscription_failing:${one.name}`, ...about }
  })
}
