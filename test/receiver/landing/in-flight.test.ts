import { randomUUID } from 'node:crypto'
import { expect, it } from 'vitest'
import { createInFlight } from '../../../src/receiver/landing/in-flight.ts'
import { reportToLand } from '../../../src/receiver/landing/report-to-land.ts'

const claimOf = (requestId: string, claims = 1) => {
  const deliveryId = randomUUID()
  const signed = { sourceName: null, keyName: 'live', environment: 'live' } as const
  return {
    claimed: { ...signed, deliveryId, claims, failures: 0, webhookId: deliveryId, receivedAt: undefined },
    report: reportToLand(
      { jobId: requestId, status: 'CANCELED', media: [], mediaComplete: true },
      { via: 'delivery', source_name: null, reporting_key: 'live', environment: 'live' },
      undefined,
    ),
    bodyBytes: 100,
    claimedAtMs: 0,
  }
}

it('never lands two deliveries of one request at the same time, also from both lanes', () => {
  const inFlight = createInFlight({ wakeInbox: () => {} })
  const [a, b] = [randomUUID(), randomUUID()]
  const claims = [claimOf(a), claimOf(a), claimOf(b), claimOf(a, 2)] as const
  claims.forEach(inFlight.addClaimed)
  const idsOf = (taken: ReturnType<typeof inFlight.takeBatch>) => taken?.batch.map(({ claimed }) => claimed.deliveryId)
  const idAt = (at: number) => claims[at]?.claimed.deliveryId
  const first = inFlight.takeBatch('fresh', 10)
  expect(idsOf(first)).toEqual([idAt(0), idAt(2)])
  expect([inFlight.takeBatch('fresh', 10), inFlight.takeBatch('again', 10)]).toEqual([undefined, undefined])
  first?.batch.forEach(inFlight.release)
  expect(idsOf(inFlight.takeBatch('again', 10))).toEqual([idAt(3)])
  expect([inFlight.takeBatch('fresh', 10), inFlight.countReady('fresh')]).toEqual([undefined, 1])
})

it('keeps a newer claim when the batch of the older one ends late', () => {
  const inFlight = createInFlight({ wakeInbox: () => {} })
  const claim = claimOf(randomUUID())
  inFlight.addClaimed(claim)
  const late = inFlight.takeBatch('fresh', 10)
  late?.batch.forEach(inFlight.release)
  inFlight.addClaimed(claim)
  late?.batch.forEach(inFlight.release)
  expect([inFlight.isEmpty(), inFlight.countReady('fresh')]).toEqual([false, 1])
})

it('wakes the claims once a hundred fit again', () => {
  let wakes = 0
  const inFlight = createInFlight({ wakeInbox: () => (wakes += 1) })
  for (let n = 0; n < 1000; n += 1) inFlight.addClaimed(claimOf(randomUUID()))
  expect(inFlight.roomToClaim()).toBeUndefined()
  const { batch = [] } = inFlight.takeBatch('fresh', 500) ?? {}
  batch.slice(0, 99).forEach(inFlight.release)
  expect(wakes).toBe(0)
  batch.slice(99, 300).forEach(inFlight.release)
  expect([wakes, inFlight.roomToClaim()?.rows]).toEqual([1, 300])
})
