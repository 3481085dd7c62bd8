import type { FairLanes } from './fair-lanes.ts'
import { firstLane, type LanePage, type LanePlace } from './outbox-claims.ts'

export type LaneWalk = {
  /** All lanes are to be looked at once more; a walk that has begun goes on to its end first. */
  begin: () => void
  /**
   * Looks at one page, where there is room for what it may find. Answers whether
   * there is another to look at now.
   */
  look: () => Promise<boolean>
  /** More is due of this account than is remembered: what is remembered makes room as soon as it has been chosen. */
  isCut: (accountId: string) => boolean
}

/**
 * The walk over all lanes in which something may be due. An account that has
 * more of them than are remembered of one is left there, and the walk goes on at
 * the next account: it hides nobody. Its rest is looked at from where it was
 * left, to its end, as it makes room, in turn with the walk over all: so each of
 * its lanes is remembered in turn too, whatever is due in the first of them.
 */
export function createLaneWalk({
  find,
  lanes,
}: {
  find: (after: LanePlace) => Promise<LanePage>
  lanes: FairLanes
}): LaneWalk {
  let isWanted = false
  let at: LanePlace | undefined
  /** By account, after which of its lanes the rest begins; the longest left first. */
  const cut = new Map<string, LanePlace>()
  let wasRest = false

  const nextRest = (): LanePlace | undefined => {
    for (const [accountId, place] of cut) if (lanes.hasRoomOf(accountId)) return place
    return undefined
  }
  const take = ({ due }: LanePage, after: LanePlace, isMine: (accountId: string) => boolean) => {
    let before = after
    for (const lane of due) {
      const { accountId } = lane
      if (isMine(accountId) && !cut.has(accountId) && !lanes.remember(lane)) {
        cut.set(accountId, before.accountId === accountId ? before : { accountId, host: '' })
      }
      before = lane
    }
  }
  const lookAtAll = async (after: LanePlace) => {
    const page = await find(after)
    take(page, after, () => true)
    const { next } = page
    at = next && cut.has(next.accountId) ? { ...next, host: undefined } : next
  }
  const lookAtRest = async (after: LanePlace) => {
    const { accountId } = after
    const page = await find(after)
    // Were it left in, nothing of it would be taken; put in again it is the last.
    cut.delete(accountId)
    take(page, after, (of) => of === accountId)
    if (page.next?.accountId === accountId && !cut.has(accountId)) cut.set(accountId, page.next)
  }

  return {
    begin: () => void (isWanted = true),
    look: async () => {
      if (!lanes.hasRoom()) return false
      if (at === undefined && isWanted) {
        isWanted = false
        at = firstLane
      }
      const rest = nextRest()
      wasRest = rest !== undefined && (at === undefined || !wasRest)
      if (wasRest && rest) await lookAtRest(rest)
      else if (at) await lookAtAll(at)
      return at !== undefined || isWanted || nextRest() !== undefined
    },
    isCut: (accountId) => cut.has(accountId),
  }
}
