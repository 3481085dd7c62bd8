/** Steps in which shares are compared. */
const stepBytes = 1024
/** What is gone is cleared away once it is more than what is there. */
const smallestSweep = 64

/** Something that has a share of the room. `isGone` once it was taken out. */
export type Held<Item> = { item: Item | undefined; weight: number; share: Share<Item>; isGone: boolean }

/** Whoever shares the room with others, and is shared by what is below: a network by its senders. */
export type Share<Item> = {
  name: string
  above: Share<Item> | undefined
  weight: number
  below: Map<string, Share<Item>>
  /** Those below by their weight in steps, and the most that any of them has. */
  ranks: Map<number, Share<Item>[]>
  heaviest: number
  /** Its own place among those beside it. */
  rank: number
  place: number
  held: Held<Item>[]
  live: number
}

export type FairShares<Item> = {
  weight: () => number
  /** The item under its path, the most general share first. */
  add: (path: readonly string[], item: Item, weight: number) => Held<Item>
  take: (held: Held<Item>) => void
  /** Takes out the newest of whoever has most, level by level; false where there is nothing. */
  takeFromHeaviest: () => boolean
  /** Whether something of that weight would itself be what is taken from whoever has most. */
  wouldBeHeaviest: (path: readonly string[], weight: number) => boolean
}

/**
 * Who has how much of a room, in levels: where it is full, whoever has most at
 * the top level gives way, and there whoever has most at the next one. Each step
 * costs the same however many there are: a stranger may bring thousands.
 */
export function createFairShares<Item>(): FairShares<Item> {
  const root = newShare<Item>('', undefined)

  const weigh = (from: Share<Item>, change: number): void => {
    for (let share: Share<Item> | undefined = from; share; share = share.above) {
      share.weight += change
      if (share.above) rankAgain(share.above, share)
    }
  }
  const take = (held: Held<Item>): void => {
    if (held.isGone) return
    const { share } = held
    held.isGone = true
    held.item = undefined
    share.live -= 1
    if (share.held.length > smallestSweep && share.held.length > share.live * 2)
      share.held = share.held.filter(({ isGone }) => !isGone)
    weigh(share, -held.weight)
  }

  return {
    weight: () => root.weight,
    add: (path, item, weight) => {
      let share = root
      for (const name of path) share = share.below.get(name) ?? openShare(share, name)
      const held = { item, weight, share, isGone: false }
      share.held.push(held)
      share.live += 1
      weigh(share, weight)
      return held
    },
    take,
    takeFromHeaviest: () => {
      let share = root
      for (;;) {
        const next = share.ranks.get(share.heaviest)?.at(-1)
        if (!next) break
        share = next
      }
      while (share.held.at(-1)?.isGone) share.held.pop()
      const newest = share.held.pop()
      if (!newest) return false
      take(newest)
      return true
    },
    wouldBeHeaviest: (path, weight) => {
      let share: Share<Item> | undefined = root
      for (const name of path) {
        const mine: Share<Item> | undefined = share?.below.get(name)
        if (stepsOf((mine?.weight ?? 0) + weight) < (share?.heaviest ?? 0)) return false
        share = mine
      }
      return true
    },
  }
}

function newShare<Item>(name: string, above: Share<Item> | undefined): Share<Item> {
  return {
    name,
    above,
    weight: 0,
    below: new Map(),
    ranks: new Map(),
    heaviest: 0,
    rank: 0,
    place: -1,
    held: [],
    live: 0,
  }
}

function openShare<Item>(above: Share<Item>, name: string): Share<Item> {
  const share = newShare(name, above)
  above.below.set(name, share)
  return share
}

function rankAgain<Item>(above: Share<Item>, share: Share<Item>): void {
  const rank = stepsOf(share.weight)
  if (rank === share.rank) return
  leaveRank(above, share)
  share.rank = rank
  if (rank === 0) above.below.delete(share.name)
  else {
    const beside = above.ranks.get(rank) ?? []
    if (beside.length === 0) above.ranks.set(rank, beside)
    share.place = beside.push(share) - 1
    above.heaviest = Math.max(above.heaviest, rank)
  }
  // As many steps down as were gone up when it was added.
  while (above.heaviest > 0 && !above.ranks.has(above.heaviest)) above.heaviest -= 1
}

function leaveRank<Item>(above: Share<Item>, share: Share<Item>): void {
  const beside = above.ranks.get(share.rank)
  const last = beside?.pop()
  if (!beside || !last) return
  if (last !== share) {
    beside[share.place] = last
    last.place = share.place
  }
  if (beside.length === 0) above.ranks.delete(share.rank)
}

function stepsOf(weight: number): number {
  return Math.ceil(weight / stepBytes)
}
