import type { Problem } from '../domain/problem.ts'
import type { Balances } from '../fetching/balances.ts'
import { clockTime, duration } from './figures.ts'

/** Accounts without credits, or soon without, and accounts whose usage differs from the landed cost. */
export function balanceProblems({ refused, accounts }: Balances, now: Date): Problem[] {
  const spent = refused.map(({ keyName, at }): Problem => {
    const text = [
      `The account of the key ${keyName} has no credits left: submits are refused (402 insufficient_credits),`,
      `last at ${clockTime(at, now)}. Add credits at the provider. Callers must submit refused requests again. Polling and landing continue.`,
    ].join(' ')
    return {
      severity: 'critical',
      text,
      cause: `credits_spent:${keyName}`,
      href: '/keys',
      affected: [keyName],
    }
  })
  const ofAccounts = accounts.flatMap((account) => {
    const { keyName, credits, spentLastHour, difference } = account
    const problem = (cause: string, text: string): Problem => ({
      severity: 'warning',
      text,
      cause: `${cause}:${keyName}`,
      href: '/costs',
      affected: [keyName],
    })
    const problems: Problem[] = []
    if (credits < spentLastHour * 24) {
      const lasts = duration((Math.max(0, credits) / spentLastHour) * 3600)
      const text = [
        `The account of the key ${keyName} has ${credits} credits left, which last about ${lasts}`,
        'at the rate of the last hour. Add credits.',
      ].join(' ')
      problems.push(problem('balance_low', text))
    }
    // The landed cost and the provider's usage may differ by this share: both round, and by different clocks.
    if (difference !== null && difference > 0.01) {
      const share = (difference * 100).toFixed(1)
      const text = [
        `The landed cost of 30 days differs by ${share} % from the provider's usage`,
        `of the account of the key ${keyName}.`,
        'Look for requests that were submitted elsewhere, or that have not landed.',
      ].join(' ')
      problems.push(problem('cost_differs', text))
    }
    return problems
  })
  return [...spent, ...ofAccounts]
}
