export type Amount = { rows: number; bytes: number }

export type Shares = {
  /** Whether this owner may bring one more row, whatever its bytes are. */
  isOpen: (owner: string) => boolean
  /** Counts a row, whether or not there was room. */
  add: (owner: string, bytes: number) => void
  remove: (owner: string, bytes: number) => void
  held: () => Amount
}

/** The part of the room that is not for an owner who has all the rest. */
const shareOfOthers = 0.2

/** Room for rows of several owners, of which none can take all: thousands of one keep no other out. */
export function createShares(max: Amount): Shares {
  return createRoomFor(max, { rows: max.rows * (1 - shareOfOthers), bytes: max.bytes * (1 - shareOfOthers) })
}

/** Room for rows of one owner. */
export function createRoomOfOne(maxRows: number): Shares {
  const max = { rows: maxRows, bytes: Infinity }
  return createRoomFor(max, max)
}

function createRoomFor(max: Amount, mostOfOne: Amount): Shares {
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
