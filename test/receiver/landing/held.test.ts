import { randomUUID } from 'node:crypto'
import { expect, it } from 'vitest'
import { createHeld } from '../../../src/receiver/landing/held.ts'
import { landingOfReport } from '../../../src/receiver/landing/row-to-write.ts'

const claimOf = (requestId: string, claims = 1) => {
  const deliveryId = randomUUID()
  const signed = { sourceName: null, keyName: 'live', environment: 'live' } as const
  return {
    claimed: { ...signed, deliveryId, claims, failures: 0, webhookId: deliveryId, receivedAt: undefined },
    landing: landingOfReport(
      { jobId: requestId, status: 'CANCELED', media: [], mediaComplete: true },
      { ...signed, fetched: false, delivery: undefined, mediaHosts: undefined },
    ),
    bodyBytes: 100,
    claimedAtMs: 0,
  }
}

it('never lands two deliveries of one request at the same time, also from both lanes', () => {
  const held = createHeld({ wake: () => {} })
  const [a, b] = [randomUUID(), randomUUID()]
  const claims = [claimOf(a), claimOf(a), claimOf(b), claimOf(a, 2)] as const
  claims.forEach(held.holdClaimed)
  const idsOf = (taken: ReturnType<typeof held.takeBatch>) => taken?.batch.map(({ claimed }) => claimed.deliveryId)
  const idAt = (at: number) => claims[at]?.claimed.deliveryId
  const first = held.takeBatch('fresh', 10)
  expect(idsOf(first)).toEqual([idAt(0), idAt(2)])
  expect([held.takeBatch('fresh', 10), held.takeBatch('again', 10)]).toEqual([undefined, undefined])
  first?.batch.forEach(held.release)
  expect(idsOf(held.takeBatch('again', 10))).toEqual([idAt(3)])
  expect([held.takeBatch('fresh', 10), held.waiting('fresh')]).toEqual([undefined, 1])
})

it('keeps a newer claim when the batch of the older one ends late', () => {
  const held = createHeld({ wake: () => {} })
  const claim = claimOf(randomUUID())
  held.holdClaimed(claim)
  const late = held.takeBatch('fresh', 10)
  late?.batch.forEach(held.release)
  held.holdClaimed(claim)
  late?.batch.forEach(held.release)
  expect([held.isEmpty(), held.waiting('fresh')]).toEqual([false, 1])
})

it('wakes the claims once a hundred fit again', () => {
  let wakes = 0
  const held = createHeld({ wake: () => (wakes += 1) })
  for (let n = 0; n < 1000; n += 1) held.holdClaimed(claimOf(randomUUID()))
  expect(held.roomToClaim()).toBeUndefined()
  const { batch = [] } = held.takeBatch('fresh', 500) ?? {}
  batch.slice(0, 99).forEach(held.release)
  expect(wakes).toBe(0)
  batch.slice(99, 300).forEach(held.release)
  expect([wakes, held.roomToClaim()?.rows]).toEqual([1, 300])
})
