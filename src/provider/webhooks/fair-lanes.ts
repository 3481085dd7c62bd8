import type { Lane } from './outbox-claims.ts'

/** Attempts of this process at the same time: in all, to one host, and of one account to one host. */
const inAll = 128
export const attemptsPerHost = 16
const perLane = 8
/** An account may hold a third of what is free: a quarter of all while it is alone, less the more are waiting. */
const shareOfFree = 1 / 3
/** Lanes that are remembered to be due, in all and of one account; the search for them goes on when there is room again. */
const maxRemembered = 50_000
const maxOfAccount = 1000

export type Chosen = Lane & { count: number }

export type FairLanes = {
  hasRoom: () => boolean
  /** Enough for more of this account's lanes to be looked for. */
  hasRoomOf: (accountId: string) => boolean
  /** False, and it is not remembered, where the account has as many as it may. */
  remember: (lane: Lane) => boolean
  /**
   * What may start now: one of each account in turn, and of each account one for
   * each of its hosts in turn. The places are taken until they are given back.
   */
  choose: () => Chosen[]
  /** Gives places back: of an attempt that has ended, or that never began. */
  giveBack: (lanes: readonly Chosen[]) => void
  /** Nothing more is due in it. */
  forget: (lane: Lane) => void
}

/**
 * Shares the attempts of this process: among accounts first, then among the
 * hosts of each. Whatever one account has to send to hosts that never answer
 * takes its part and no more, and leaves a place to whoever comes next.
 */
export function createFairLanes(): FairLanes {
  /** By account the hosts in which something is due; who was served last stands last. */
  const due = new Map<string, Set<string>>()
  const held = {
    accounts: new Map<string, number>(),
    hosts: new Map<string, number>(),
    lanes: new Map<string, number>(),
  }
  let remembered = 0
  let free = inAll

  const take = ({ accountId, host }: Lane, count: number) => {
    free -= count
    add(held.accounts, accountId, count)
    add(held.hosts, host, count)
    add(held.lanes, laneKey({ accountId, host }), count)
  }
  const hostWithPlace = (accountId: string, hosts: ReadonlySet<string>): string | undefined => {
    for (const host of hosts) {
      const ofLane = held.lanes.get(laneKey({ accountId, host })) ?? 0
      if (ofLane < perLane && (held.hosts.get(host) ?? 0) < attemptsPerHost) return host
    }
    return undefined
  }
  const nextOf = (accountId: string): Lane | undefined => {
    const mine = held.accounts.get(accountId) ?? 0
    const hosts = due.get(accountId)
    if (hosts === undefined || mine >= Math.max(1, free * shareOfFree)) return undefined
    const host = hostWithPlace(accountId, hosts)
    if (host === undefined) return undefined
    hosts.delete(host)
    hosts.add(host)
    due.delete(accountId)
    due.set(accountId, hosts)
    return { accountId, host }
  }

  return {
    hasRoom: () => remembered < maxRemembered,
    hasRoomOf: (accountId) => (due.get(accountId)?.size ?? 0) <= maxOfAccount / 2,
    remember: ({ accountId, host }) => {
      const hosts = due.get(accountId) ?? new Set()
      if (hosts.has(host)) return true
      if (hosts.size >= maxOfAccount) return false
      remembered += 1
      hosts.add(host)
      due.set(accountId, hosts)
      return true
    },
    choose: () => {
      const chosen = new Map<string, Chosen>()
      // Who gets nothing in one round gets nothing in the next: places only become fewer.
      let accounts = [...due.keys()]
      while (accounts.length > 0) {
        accounts = accounts.filter((accountId) => {
          const lane = free > 0 ? nextOf(accountId) : undefined
          if (lane === undefined) return false
          const key = laneKey(lane)
          chosen.set(key, { ...lane, count: (chosen.get(key)?.count ?? 0) + 1 })
          take(lane, 1)
          return true
        })
      }
      return [...chosen.values()]
    },
    giveBack: (lanes) => {
      for (const { count, ...lane } of lanes) take(lane, -count)
    },
    forget: ({ accountId, host }) => {
      const hosts = due.get(accountId)
      if (hosts?.delete(host)) remembered -= 1
      if (hosts?.size === 0) due.delete(accountId)
    },
  }
}

function add(counts: Map<string, number>, key: string, count: number): void {
  const sum = (counts.get(key) ?? 0) + count
  if (sum === 0) counts.delete(key)
  else counts.set(key, sum)
}

/** A host has no space in it. */
function laneKey({ accountId, host }: Lane): string {
  return `${host} ${accountId}`
}
