import type { Limited } from '../../platform/pages/guess-limit.ts'
import type { Problem } from '../domain/problem.ts'
import { count } from './figures.ts'

/** Bounded, because an issue keeps its addresses in one row. */
const maxAddressesShown = 20

/** Names the first address in the text; `affected` lists the others. */
export function wrongTokensProblem(limited: readonly Limited[] = []): Problem[] {
  const [first, ...others] = limited
  if (first === undefined) return []
  const from =
    others.length === 0
      ? first.address
      : `${first.address} and ${count(others.length, 'other address', 'other addresses')}`
  const until = first.until.toISOString().slice(11, 19)
  const effect = `Wrong tokens are answered 429 until ${until}; right ones are accepted.`
  const text = `Too many wrong tokens came from ${from}. ${effect} Look for a caller with an old token.`
  const affected = limited.slice(0, maxAddressesShown).map(({ address }) => address)
  return [{ severity: 'warning', text, cause: 'wrong_tokens', count: limited.length, affected, href: '/issues' }]
}
