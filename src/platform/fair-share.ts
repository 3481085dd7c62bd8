import { sql, type SQL } from './postgres/drizzle.ts'

/*
 * The fairness rule, for every place where owners (keys, senders, accounts) wait for the same thing: they take turns, and
 * none holds more than its share. So a backlog of one owner, however long, keeps no other waiting.
 *
 * - In memory, `createShares` bounds what one owner holds of a room.
 * - In a claim, `turnOf` numbers the rows of each owner, and the claim takes the lowest numbers.
 * - Of the calls to the provider, fetching/call-budget.ts gives submitting and completing a share each.
 */

/** For the ORDER BY of a claim: the turn of a row among the rows of its owner. */
export function turnOf(owner: SQL, order: SQL): SQL {
  return sql`row_number() over (partition by ${owner} order by ${order})`
}

export type Amount = { rows: number; bytes: number }

export type Shares = {
  /** Whether this owner may bring one more row, whatever its bytes are. */
  isOpen: (owner: string) => boolean
  /** Counts a row, whether or not there was room. */
  add: (owner: string, bytes: number) => void
  remove: (owner: string, bytes: number) => void
  held: () => Amount
}

/** A fifth stays free for a second owner. */
const usualLargestShare = 0.8

/** Room for rows of several owners. One owner holds up to the largest share of it. */
export function createShares(max: Amount, largestShare = usualLargestShare): Shares {
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
    isOpen: (owner) => isBelow(all, max) && isBelow(ofOwners.get(owner) ?? { rows: 0, bytes: 0 }, mostOfOne),
    add: (owner, bytes) => count(owner, 1, bytes),
    remove: (owner, bytes) => count(owner, -1, -bytes),
    held: () => all,
  }
}
