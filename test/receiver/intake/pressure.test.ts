import { setTimeout as delay } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { createPressure } from '../../../src/receiver/intake/pressure.ts'

/** A round of 20 ms while deliveries press: whether it has come back 60 ms later, before its rest of 180 ms could end. */
async function hasComeBack({ waitedMs, mustGoOn }: { waitedMs: number; mustGoOn?: () => boolean }): Promise<boolean> {
  const pressure = createPressure()
  pressure.note({ waitedMs })
  let back = false
  const stopping = new AbortController()
  const round = pressure.paced(() => delay(20), stopping.signal, mustGoOn).then(() => (back = true))
  await delay(80)
  const seen = back
  stopping.abort()
  await round
  return seen
}

it('a round is followed by a rest while deliveries wait long to be stored', async () => {
  expect(await hasComeBack({ waitedMs: 1000 })).toBe(false)
})

it('a round is followed by the next at once while they are stored soon', async () => {
  expect(await hasComeBack({ waitedMs: 20 })).toBe(true)
})

it('a role that would lose something by a rest takes none', async () => {
  expect(await hasComeBack({ waitedMs: 1000, mustGoOn: () => true })).toBe(true)
})
