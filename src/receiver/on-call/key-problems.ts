import { issueOf, type Problem } from '../domain/problem.ts'
import { defaultSourceName } from '../domain/source.ts'
import type { KeyState } from '../queries/keys.ts'
import type { RefusedSubmits } from '../submitting/refusals.ts'
import { clockTime, count, duration, exactTime, sentences } from './figures.ts'
import type { Numbers } from './numbers.ts'

// The problems of keys and of their accounts.

/** Problems of one key: its calls are refused or limited. */
export function keyProblems(key: KeyState, { now, refusedSubmits, fetchRatePerMinute }: Numbers): Problem[] {
  const name = nameOf(key)
  const problem = (severity: Problem['severity'], cause: string, text: string): Problem[] => [
    { severity, cause: `${cause}:${key.name}`, text, href: '/keys', affected: [key.name] },
  ]
  const until = key.blocked_until === null ? undefined : exactTime(key.blocked_until, now)
  if (key.blocked_reason === 'unauthorized') {
    const refused = submitsRefused(refusedSubmits, key.name, 401)
    const text = sentences(
      `The provider refuses the API key ${name} (401 or 403).`,
      until === undefined ? 'The next call tries it again.' : `Its calls rest until ${until}. Then one is tried.`,
      refused === 0 ? '' : `${count(refused, 'submit was', 'submits were')} refused in the last hour.`,
      'Replace the key if it stays refused.',
    )
    return problem('critical', 'key_refused', text)
  }
  if (until !== undefined) {
    const text = `The provider asked for a pause: no calls with the key ${name} until ${until}. Calls resume automatically.`
    return problem('warning', 'key_blocked', text)
  }
  return key.configured && !key.retired && key.quota_left === 0
    ? problem('warning', 'quota_spent', quotaSpent(key, fetchRatePerMinute))
    : []
}

/** Names the key, with its source if that is not the default source. */
function nameOf({ name, source_name }: Pick<KeyState, 'name' | 'source_name'>): string {
  return source_name === null || source_name === defaultSourceName ? name : `${name} of ${source_name}`
}

function quotaSpent({ calls, account_id, account_calls, account_limit, ...key }: KeyState, limit: number): string {
  const name = nameOf(key)
  const isAccount = account_calls !== null && account_limit !== null && account_calls >= account_limit
  const who = isAccount ? `The keys of the account ${account_id}, among them ${name}, have` : `The key ${name} has`
  const made = count(isAccount ? account_calls : calls, 'call', 'calls')
  const setting = isAccount ? 'FETCH_RATE_PER_ACCOUNT_PER_MINUTE' : `FETCH_RATE_PER_MINUTE (now ${limit})`
  return sentences(
    `${who} made ${made} in the last minute: no more are allowed.`,
    'Polls and submits wait until some of these calls are a minute old. Nothing is lost.',
    `If this lasts, raise ${setting}, at most to the provider's own limit.`,
  )
}

/** Accounts with too few credits, now or soon, and accounts whose usage differs from the landed cost. */
export function balanceProblems({ balances: { refused, accounts }, refusedSubmits, now }: Numbers): Problem[] {
  const spent = refused.flatMap(({ keyName, at }): Problem[] => {
    const submits = submitsRefused(refusedSubmits, keyName, 402)
    if (submits === 0) return []
    const text = sentences(
      `The account of the key ${keyName} has too few credits: ${count(submits, 'submit was', 'submits were')} refused`,
      `in the last hour (402 insufficient_credits), the last at ${clockTime(at, now)}. Add credits at the provider.`,
      'Then callers must submit again. Polling and landing continue. This alarm ends an hour after the last refusal.',
    )
    const cause = `credits_spent:${keyName}`
    return [{ severity: 'critical', text, cause, href: issueOf(cause), affected: [keyName], count: submits }]
  })
  const ofAccounts = accounts.flatMap((account) => {
    const { keyName, credits, spentLastHour, difference } = account
    const problem = (kind: string, text: string): Problem => {
      const cause = `${kind}:${keyName}`
      return { severity: 'warning', text, cause, href: issueOf(cause), affected: [keyName] }
    }
    const problems: Problem[] = []
    if (credits < spentLastHour * 24) {
      const lasts = duration((Math.max(0, credits) / spentLastHour) * 3600)
      const text = sentences(
        `The account of the key ${keyName} has ${credits} credits left, which last about ${lasts}`,
        'at the rate of the last hour. Add credits. The balance is read once an hour.',
      )
      problems.push(problem('balance_low', text))
    }
    // A smaller share may come from rounding and from different clocks.
    if (difference !== null && difference > 0.01) {
      const share = (difference * 100).toFixed(1)
      const text = sentences(
        `The landed cost of 30 days differs by ${share} % from the provider's usage of the account of the key ${keyName}.`,
        'Look for requests that were submitted elsewhere, or that have not landed.',
      )
      problems.push(problem('cost_differs', text))
    }
    return problems
  })
  return [...spent, ...ofAccounts]
}

/** Submits that the provider refused. Missing credits and a refused key (401) are problems of their own. */
export function refusedSubmitsProblem({ refusedSubmits, now }: Numbers): Problem[] {
  const others = refusedSubmits.filter(({ status }) => status !== 402 && status !== 401)
  const total = sum(others)
  if (total === 0) return []
  const last = others.reduce((newest, { lastAt }) => (lastAt > newest ? lastAt : newest), '')
  const causes = others.slice(0, 3).map((one) => `${one.status} ${one.code} ${one.count}× with the key ${one.keyName}`)
  const more = others.length > causes.length ? ', and others' : ''
  const isKeys = others.some(({ status }) => status === 403)
  const text = sentences(
    `The provider refused ${count(total, 'submit', 'submits')} in the last hour, the last at ${clockTime(last, now)}: ${causes.join(', ')}${more}.`,
    'Nothing was charged. Each caller got the reason and must correct its call.',
    isKeys ? 'A key that is answered 403 may not submit: submit with another.' : '',
  )
  const cause = 'submits_refused'
  const affected = [...new Set(others.map(({ keyName }) => keyName))]
  return [{ severity: isKeys ? 'warning' : 'notice', text, cause, count: total, affected, href: issueOf(cause) }]
}

/**
 * Submits that wait although no poll fails, perhaps because none is due. The cause is that of a failing source: once
 * polls fail too, the issue stays the same.
 */
export function stuckSubmitsProblems({ stuckSubmits, failingSources, generationApiUrl, now }: Numbers): Problem[] {
  const failing = new Set(failingSources.map(({ source_name: name }) => name))
  return stuckSubmits.flatMap(({ source_name: source, submits, oldest_at, error }): Problem[] => {
    if (failing.has(source ?? defaultSourceName)) return []
    const [who, url] =
      source === null
        ? ['the provider', `GENERATION_API_URL (${generationApiUrl})`]
        : [`the source ${source}`, 'the URL of its API']
    const text = sentences(
      `${count(submits, 'submit has', 'submits have')} waited for ${who} for more than a minute, the oldest since ${clockTime(oldest_at, now)}.`,
      `Last error: ${error}.`,
      'Each is repeated within 5 minutes, with the same Idempotency-Key: nothing is lost or charged twice. A submit expires after 23.5 h.',
      `If there is no answer, check the status of ${who}, and that ${url} is reachable.`,
      'If the error is about the key, correct the key.',
    )
    const isLong = now.getTime() - Date.parse(oldest_at) >= 5 * 60_000
    const cause = source === null ? 'provider_unreachable' : `provider_unreachable:${source}`
    return [{ severity: isLong ? 'critical' : 'warning', text, cause, count: submits, href: '/reconciler' }]
  })
}

function submitsRefused(all: readonly RefusedSubmits[], keyName: string, status: number): number {
  return sum(all.filter((one) => one.keyName === keyName && one.status === status))
}

function sum(submits: readonly RefusedSubmits[]): number {
  return submits.reduce((all, { count: n }) => all + n, 0)
}
