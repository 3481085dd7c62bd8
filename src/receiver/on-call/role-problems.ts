import type { FailingRole } from '../../platform/loop.ts'
import { isConnectionLost } from '../../platform/postgres/errors.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import type { Problem } from '../domain/problem.ts'
import { oldSeconds } from '../upkeep/minutes.ts'
import { duration } from './figures.ts'

/** Changes get no position, so no reader of the feed sees them. */
export function feedProblem(unsequencedSeconds: number): Problem[] {
  if (unsequencedSeconds <= oldSeconds) return []
  const text = `The feed stands still: the oldest change has waited ${duration(unsequencedSeconds)} for its position. Readers and subscriptions get nothing new until then.`
  return [{ severity: 'critical', text, cause: 'feed_stalled', href: '/subscriptions' }]
}

/** One failed round, or two, are a lock or a restart. */
const failuresInARow = 3

/** What a role of this process fails at; an outage of Postgres is told of all at once. */
export function roleProblem({ role, failures, seconds, error }: FailingRole): Problem[] {
  if (failures < failuresInARow || isConnectionLost(error)) return []
  const text = `The background role ${role} of a receiver has failed ${failures} times in a row, for ${duration(seconds)}: ${failureWords(error)}. It is retried; the log of that receiver has each failure.`
  return [{ severity: 'warning', text, cause: `role_failing:${role}`, affected: [role], href: '/' }]
}
