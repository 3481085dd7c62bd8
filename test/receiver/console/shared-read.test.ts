import { setTimeout as delay } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { sharedReads } from '../../../src/receiver/console/parts/shared-read.ts'
import { eventually } from '../../support/eventually.ts'

function counted(takesMs = 0) {
  let reads = 0
  return { times: () => reads, read: async () => delay(takesMs, (reads += 1)) }
}

it('reads once for all callers during a read and while its result is fresh', async () => {
  const shared = sharedReads<number>(60_000)
  const { read, times } = counted(5)
  expect(await Promise.all([shared('a', read), shared('a', read)])).toEqual([1, 1])
  expect(await shared('a', read)).toBe(1)
  expect(await shared('b', read)).toBe(2)
  expect(times()).toBe(2)
})

it('reads again when the result is old', async () => {
  const shared = sharedReads<number>(1)
  const { read } = counted()
  await eventually(async () => (await shared('a', read)) >= 3)
})

it('rests longer after a slow read', async () => {
  const shared = sharedReads<number>(1)
  const { read } = counted(100)
  await shared('a', read)
  await delay(50)
  expect(await shared('a', read)).toBe(1)
})

it('does not cache a failure', async () => {
  const shared = sharedReads<number>(60_000)
  await expect(shared('a', () => Promise.reject(new Error('away')))).rejects.toThrow('away')
  expect(await shared('a', () => Promise.resolve(7))).toBe(7)
})

it('is bounded: callers beyond the bound read for themselves', async () => {
  const shared = sharedReads<number>(60_000)
  const { read, times } = counted()
  for (let n = 0; n < 100; n += 1) await shared(`range ${n}`, read)
  for (let n = 0; n < 100; n += 1) await shared(`range ${n}`, read)
  expect(times()).toBe(150)
})
