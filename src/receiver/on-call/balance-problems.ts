import { issueOf, type Problem } from '../domain/problem.ts'
import type { RefusedSubmits } from '../submitting/refusals.ts'
import { clockTime, count, duration, sentences } from './figures.ts'
import type { Numbers } from './numbers.ts'

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
  const last =
    others
      .map(({ lastAt }) => lastAt)
      .toSorted()
      .at(-1) ?? ''
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

/** Counts the submits with this key that were refused with this status. */
export function submitsRefused(all: readonly RefusedSubmits[], keyName: string, status: number): number {
  return sum(all.filter((one) => one.keyName === keyName && one.status === status))
}

function sum(submits: readonly RefusedSubmits[]): number {
  return submits.reduce((all, { count: n }) => all + n, 0)
}
