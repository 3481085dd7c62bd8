import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { doublingPauseMs, jitteredPauseMs } from '../../src/wire/backoff.ts'

const spec = { baseMs: 30_000, capMs: 3_600_000 }

describe('doublingPauseMs', () => {
  it('is the spec’s: doubling from 30 s, capped at one hour', () => {
    const seconds = Array.from({ length: 10 }, (_, at) => doublingPauseMs(at + 1, spec) / 1000)
    expect(seconds).toEqual([30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600])
  })

  it('stays at the cap for any number of failures', () => {
    for (const failures of [100, 1000, 1e6]) expect(doublingPauseMs(failures, spec)).toBe(3_600_000)
  })
})

describe('jitteredPauseMs', () => {
  it('lies between half and the whole of the pause', () => {
    expect(jitteredPauseMs(2, spec, () => 0)).toBe(30_000)
    expect(jitteredPauseMs(2, spec, () => 1)).toBe(60_000)
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 2000 }),
        fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
        (failures, random) => {
          const whole = doublingPauseMs(failures, spec)
          const pause = jitteredPauseMs(failures, spec, () => random)
          expect(pause).toBeGreaterThanOrEqual(whole / 2)
          expect(pause).toBeLessThanOrEqual(whole)
          expect(Number.isInteger(pause)).toBe(true)
        },
      ),
    )
  })
})
