import type { FailingRole } from '../../platform/loop.ts'
import { isConnectionLost } from '../../platform/postgres/errors.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import { issueOf, type Problem } from '../domain/problem.ts'
import type { NotifyQueue } from '../gauges/notify-queue.ts'
import { oldSeconds } from '../upkeep/minutes.ts'
import { duration } from './figures.ts'

/** The problem of changes without a position, which no reader of the feed sees. */
export function feedProblem(unsequencedSeconds: number): Problem[] {
  if (unsequencedSeconds <= oldSeconds) return []
  const waits = `the oldest change has waited ${duration(unsequencedSeconds)} for its position`
  const text = `The feed has stopped: ${waits}. Readers and subscriptions get nothing new until it continues.`
  return [{ severity: 'critical', text, cause: 'feed_stalled', href: '/subscriptions' }]
}

/** The problem of a NOTIFY queue that is too full. Landing and the feed continue, but readers must poll. */
export function notifyQueueProblem({ usage, notifies, holder }: NotifyQueue): Problem[] {
  if (notifies) return []
  const state = `Postgres's NOTIFY queue is ${Math.round(usage * 100)} % full, so readers are not notified`
  const why = 'and find changes by polling. A session keeps a transaction open after LISTEN.'
  const text = `${state} ${why} ${howToEnd(holder)}`
  return [{ severity: 'warning', text, cause: 'notify_queue_full', href: issueOf('notify_queue_full') }]
}

function howToEnd(holder: NotifyQueue['holder']): string {
  if (holder === null)
    return 'Find the oldest open transaction in pg_stat_activity, as a role with pg_monitor, and end that session.'
  const role = holder.role === null ? '' : `, role ${holder.role}`
  const whose = `The oldest open transaction belongs to process ${holder.pid}${role}.`
  return `${whose} End it: select pg_terminate_backend(${holder.pid}).`
}

/** The problem of a failing role. A lost connection to Postgres is no problem of a role: watch.ts reports it. */
export function roleProblem({ role, failures, seconds, error }: FailingRole): Problem[] {
  // One or two failed rounds may be a lock or a restart.
  if (failures < 3 || isConnectionLost(error)) return []
  const failed = `has failed ${failures} times in a row, for ${duration(seconds)}: ${failureWords(error)}`
  const text = `The background role ${role} of a receiver ${failed}. It is retried. That receiver logs each failure.`
  const cause = `role_failing:${role}`
  return [{ severity: 'warning', text, cause, affected: [role], href: issueOf(cause) }]
}
