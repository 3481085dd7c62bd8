import { setTimeout as delay } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { createPressure } from '../../../src/receiver/intake/pressure.ts'

/** A round of 20 ms while deliveries press: whether it has come back 60 ms later, before its rest of 180 ms could end. */
async function hasComeBack({ deliveries, mustGoOn }: { deliveries: number; mustGoOn?: () => boolean }): Promise<boolean> {
  const pressure = createPressure()
  pressure.note(deliveries)
  let back = false
  const stopping = new AbortController()
  const round = pressure.paced(() => delay(20), stopping.signal, mustGoOn).then(() => (back = true))
  await delay(80)
  const seen = back
  stopping.abort()
  await round
  return seen
}

it('a round is followed by a rest while deliveries press', async () => {
  expect(await hasComeBack({ deliveries: 256 })).toBe(false)
})

it('a round is followed by the next at once while nothing presses', async () => {
  expect(await hasComeBack({ deliveries: 1 })).toBe(true)
})

it('a role that would lose something by a rest takes none', async () => {
  expect(await hasComeBack({ deliveries: 256, mustGoOn: () => true })).toBe(true)
})
