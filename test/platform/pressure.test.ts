import { setTimeout as delay, setImmediate } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { createPressure } from '../../src/platform/pressure.ts'

/** A round of 20 ms while deliveries press: whether it has come back 60 ms later, before its rest of 180 ms could end. */
async function hasComeBack({ left, mustGoOn }: { left: number; mustGoOn?: () => boolean }): Promise<boolean> {
  const pressure = createPressure()
  pressure.note({ deliveries: 256, left })
  let back = false
  const stopping = new AbortController()
  const round = pressure.paced(() => delay(20), stopping.signal, mustGoOn).then(() => (back = true))
  await delay(80)
  const seen = back
  stopping.abort()
  await round
  return seen
}

it('a round is followed by a rest while flushes leave many deliveries waiting', async () => {
  expect(await hasComeBack({ left: 1000 })).toBe(false)
})

it('a round is followed by the next at once while flushes take all waiting deliveries', async () => {
  expect(await hasComeBack({ left: 100 })).toBe(true)
})

it('a role that would lose data by a rest takes none', async () => {
  expect(await hasComeBack({ left: 1000, mustGoOn: () => true })).toBe(true)
})

it('a burst is over as soon as flushes take all waiting deliveries', async () => {
  const pressure = createPressure()
  pressure.note({ deliveries: 1, left: 5000 })
  for (let flush = 0; flush < 10; flush += 1) pressure.note({ deliveries: 256, left: 0 })
  let rested = false
  void pressure.giveWay(1000, new AbortController().signal).then(() => (rested = true))
  await setImmediate()
  expect(rested).toBe(true)
})
