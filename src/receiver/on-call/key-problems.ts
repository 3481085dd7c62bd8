import type { Problem } from '../domain/problem.ts'
import { firstSourceName } from '../domain/source.ts'
import type { KeyState } from '../queries/keys.ts'
import type { RefusedSubmits } from '../submitting/refusals.ts'
import { submitsRefused } from './balance-problems.ts'
import { clockTime, count } from './figures.ts'

/** Problems of one key: calls that the provider refuses or limits, and deliveries signed by an old key. */
export function keyProblems(key: KeyState, now: Date, refusedSubmits: readonly RefusedSubmits[]): Problem[] {
  const name = nameOf(key)
  const problem = (severity: Problem['severity'], cause: string, text: string): Problem[] => [
    { severity, cause: `${cause}:${key.name}`, text, href: '/keys', affected: [key.name] },
  ]
  if (key.blocked_until !== null) {
    const until = clockTime(key.blocked_until, now)
    if (key.blocked_reason === 'unauthorized') {
      const refused = submitsRefused(refusedSubmits, key.name, 401)
      const submits = refused === 0 ? '' : ` ${count(refused, 'submit was', 'submits were')} refused in the last hour.`
      const text = `The provider answers 401 to the API key ${name}. It makes no calls until ${until}, then tries one.${submits} Replace the key if it stays refused.`
      return problem('critical', 'key_refused', text)
    }
    const text = `The provider asked for a pause: no calls with the key ${name} until ${until}. Calls resume automatically.`
    return problem('warning', 'key_blocked', text)
  }
  if (key.configured && !key.retired && key.quota_left === 0) {
    return problem('warning', 'quota_spent', quotaSpent(key))
  }
  if (!key.still_matches || key.last_match_at === null) return []
  const last = clockTime(key.last_match_at, now)
  if (key.configured)
    return problem(
      'notice',
      'retired_key_matches',
      `The retired key ${name} still signs deliveries, last at ${last}: keep its secret.`,
    )
  const text = `The key ${name} signed deliveries until ${last} and is no longer configured. Deliveries that it signs now are refused.`
  return problem('notice', 'removed_key_matched', text)
}

/** Names the key, with its source unless that is the first one. */
function nameOf({ name, source_name }: Pick<KeyState, 'name' | 'source_name'>): string {
  return source_name === null || source_name === firstSourceName ? name : `${name} of ${source_name}`
}

function quotaSpent({ calls, account_id, account_calls, account_limit, ...key }: KeyState): string {
  const name = nameOf(key)
  if (account_calls !== null && account_limit !== null && account_calls >= account_limit) {
    const made = count(account_calls, 'call', 'calls')
    return [
      `The keys of the account ${account_id}, among them ${name}, have made all calls that they may make in a minute:`,
      `${made} in the last one. Polls wait until calls are a minute old.`,
    ].join(' ')
  }
  const made = count(calls, 'call', 'calls')
  return [
    `The key ${name} has made all calls that it may make in a minute: ${made} in the last one.`,
    'Polls wait until calls are a minute old.',
  ].join(' ')
}
