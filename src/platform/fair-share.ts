import { sql, type SQL } from './postgres/drizzle.ts'

/*
 * The fairness rule for owners (keys, senders, accounts) that compete for one resource: they take turns, and none holds
 * more than its share. A long backlog of one owner then delays no other owner.
 *
 * - In memory, `createShares` limits the part of a buffer that one owner may hold.
 * - In a claim, `turnOf` numbers the rows of each owner, and the claim takes the lowest numbers.
 * - For calls to the provider, fetching/call-budget.ts gives submitting and completing a share each.
 */

/** For the ORDER BY of a claim: the number of a row among the rows of its owner. */
export function turnOf(owner: SQL, order: SQL): SQL {
  return sql`row_number() over (partition by ${owner} order by ${order})`
}

export type Amount = { rows: number; bytes: number }

export type Shares = ReturnType<typeof createShares>

/** Counts the rows of several owners in a buffer. By default, one owner may fill four fifths of it. */
export function createShares(max: Amount, largestShare = 0.8) {
  const mostOfOne = { rows: max.rows * largestShare, bytes: max.bytes * largestShare }
  const all = { rows: 0, bytes: 0 }
  const ofOwners = new Map<string, Amount>()

  const count = (owner: string, rows: 1 | -1, bytes: number) => {
    const own = ofOwners.get(owner) ?? { rows: 0, bytes: 0 }
    for (const amount of [all, own]) {
      amount.rows += rows
      amount.bytes += bytes
    }
    if (own.rows === 0) ofOwners.delete(owner)
    else ofOwners.set(owner, own)
  }
  const isBelow = ({ rows, bytes }: Amount, limit: Amount) => rows < limit.rows && bytes < limit.bytes

  return {
    /** True if this owner may add one more row of any size. */
    isOpen: (owner: string): boolean =>
      isBelow(all, max) && isBelow(ofOwners.get(owner) ?? { rows: 0, bytes: 0 }, mostOfOne),
    /** Counts a row, even if it exceeds the limit. */
    add: (owner: string, bytes: number) => count(owner, 1, bytes),
    remove: (owner: string, bytes: number) => count(owner, -1, -bytes),
    held: (): Amount => all,
  }
}
