import type { FailingRole } from '../../platform/loop.ts'
import { isConnectionLost } from '../../platform/postgres/errors.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import type { Problem } from '../domain/problem.ts'
import type { NotifyQueue } from '../feeding/notify-queue.ts'
import { oldSeconds } from '../upkeep/minutes.ts'
import { duration, percent } from './figures.ts'

/** Changes get no position, so no reader of the feed sees them. */
export function feedProblem(unsequencedSeconds: number): Problem[] {
  if (unsequencedSeconds <= oldSeconds) return []
  const text = `The feed stands still: the oldest change has waited ${duration(unsequencedSeconds)} for its position. Readers and subscriptions get nothing new until then.`
  return [{ severity: 'critical', text, cause: 'feed_stalled', href: '/subscriptions' }]
}

/** Readers are no longer notified. Landing and the feed go on, and readers find what is new when they look for it. */
export function notifyQueueProblem({ usage, notifies, holder }: NotifyQueue): Problem[] {
  if (notifies) return []
  const state = `Postgres's NOTIFY queue is ${percent(usage)} full, so readers are not notified`
  const why = 'and find what is new by polling. A session keeps a transaction open after LISTEN.'
  const text = `${state} ${why} ${howToEnd(holder)}`
  return [{ severity: 'warning', text, cause: 'notify_queue_full', href: '/' }]
}

function howToEnd(holder: NotifyQueue['holder']): string {
  if (holder === null)
    return 'Find the oldest open transaction in pg_stat_activity, as a role with pg_monitor, and end that session.'
  const role = holder.role === null ? '' : `, role ${holder.role}`
  const whose = `The oldest open transaction is of process ${holder.pid}${role}.`
  return `${whose} End it: select pg_terminate_backend(${holder.pid}).`
}

/** One failed round, or two, are a lock or a restart. */
const failuresInARow = 3

/** What a role of this process fails at; an outage of Postgres is told of all at once. */
export function roleProblem({ role, failures, seconds, error }: FailingRole): Problem[] {
  if (failures < failuresInARow || isConnectionLost(error)) return []
  const text = `The background role ${role} of a receiver has failed ${failures} times in a row, for ${duration(seconds)}: ${failureWords(error)}. It is retried; the log of that receiver has each failure.`
  return [{ severity: 'warning', text, cause: `role_failing:${role}`, affected: [role], href: '/' }]
}
