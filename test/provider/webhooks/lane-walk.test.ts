import { expect, it } from 'vitest'
import { createFairLanes } from '../../../src/provider/webhooks/fair-lanes.ts'
import { createLaneWalk } from '../../../src/provider/webhooks/lane-walk.ts'
import type { Lane, LanePlace } from '../../../src/provider/webhooks/outbox-claims.ts'

const lanesOf = (accountId: string, count: number): Lane[] =>
  Array.from({ length: count }, (_, n) => ({ accountId, host: `${String(n).padStart(5, '0')}.example` }))

/** A walk over lanes in all of which something is due at all times; in the order of accounts and hosts. */
function walkOver(all: readonly Lane[]) {
  const pageSize = 2000
  const isAfter = ({ accountId, host }: Lane, after: LanePlace) =>
    accountId > after.accountId || (accountId === after.accountId && after.host !== undefined && host > after.host)
  const lanes = createFairLanes()
  const find = async (after: LanePlace) => {
    const start = all.findIndex((lane) => isAfter(lane, after))
    const due = start === -1 ? [] : all.slice(start, start + pageSize)
    return { due, next: due.length === pageSize ? due.at(-1) : undefined }
  }
  const walk = createLaneWalk({ find, lanes })
  const choose = () => {
    const chosen = lanes.choose()
    for (const lane of chosen) if (walk.isCut(lane.accountId)) lanes.forget(lane)
    return chosen
  }
  return { walk, lanes, choose }
}

it('over 60,000 lanes of one account finds those of the accounts after it', async () => {
  const { walk, choose } = walkOver([...lanesOf('greedy', 60_000), ...lanesOf('modest', 1)])
  walk.begin()
  let pages = 1
  while (await walk.look()) pages += 1
  expect(pages).toBeLessThan(5)
  expect(choose().map(({ accountId }) => accountId)).toContain('modest')
})

it('remembers each of 5,000 lanes of an account in turn, though something is always due in the first of them', async () => {
  const { walk, lanes, choose } = walkOver([...lanesOf('a', 3), ...lanesOf('many', 5000), ...lanesOf('z', 3)])
  const served = new Map<string, Set<string>>()
  // Some 20 of them at a time: time for each to be served nearly twice.
  for (let round = 0; round < 450; round += 1) {
    walk.begin()
    await walk.look()
    const chosen = choose()
    for (const { accountId, host } of chosen) served.set(accountId, (served.get(accountId) ?? new Set()).add(host))
    lanes.giveBack(chosen)
  }
  expect(Object.fromEntries([...served].map(([accountId, hosts]) => [accountId, hosts.size]))).toEqual({
    a: 3,
    many: 5000,
    z: 3,
  })
})
