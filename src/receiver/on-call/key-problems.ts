import type { Problem } from '../domain/problem.ts'
import { defaultSourceName } from '../domain/source.ts'
import type { KeyState } from '../queries/keys.ts'
import type { RefusedSubmits } from '../submitting/refusals.ts'
import { submitsRefused } from './balance-problems.ts'
import { clockTime, count } from './figures.ts'

/** Problems of one key: its calls are refused or limited. */
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
      const rest = `The provider refuses the API key ${name} (401 or 403). Its calls rest until ${until}.`
      const text = `${rest} Then one is tried.${submits} Replace the key if it stays refused.`
      return problem('critical', 'key_refused', text)
    }
    const text = `The provider asked for a pause: no calls with the key ${name} until ${until}. Calls resume automatically.`
    return problem('warning', 'key_blocked', text)
  }
  return key.configured && !key.retired && key.quota_left === 0
    ? problem('warning', 'quota_spent', quotaSpent(key))
    : []
}

/** Names the key, with its source if that is not the default source. */
function nameOf({ name, source_name }: Pick<KeyState, 'name' | 'source_name'>): string {
  return source_name === null || source_name === defaultSourceName ? name : `${name} of ${source_name}`
}

function quotaSpent({ calls, account_id, account_calls, account_limit, ...key }: KeyState): string {
  const name = nameOf(key)
  const isAccount = account_calls !== null && account_limit !== null && account_calls >= account_limit
  const who = isAccount ? `The keys of the account ${account_id}, among them ${name}, have` : `The key ${name} has`
  const made = count(isAccount ? account_calls : calls, 'call', 'calls')
  const rest = 'Polls wait until some of these calls are a minute old.'
  return `${who} made ${made} in the last minute: no more are allowed. ${rest}`
}
