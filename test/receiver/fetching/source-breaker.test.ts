import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { createSourceBreaker, type SourceBreaker } from '../../../src/receiver/fetching/source-breaker.ts'

const start = new Date('2026-01-01T00:00:00Z')
const after = (seconds: number) => new Date(start.getTime() + seconds * 1000)

// In the middle of the jitter: a pause is 5 s.
beforeEach(() => void vi.spyOn(Math, 'random').mockReturnValue(0.5))
afterEach(() => vi.restoreAllMocks())

function afterFailures(failures: number) {
  const breaker = createSourceBreaker()
  for (let n = 0; n < failures; n += 1) passOf(breaker, start).note(false, start)
  return breaker
}

function passOf(breaker: SourceBreaker, now: Date) {
  const pass = breaker.enter(now)
  if (!pass) throw new Error(`calls pause at ${now.toISOString()}`)
  return pass
}

it('allows calls until the source has failed eight times in a row', () => {
  passOf(afterFailures(7), start)
  expect(afterFailures(8).enter(start)).toBeUndefined()
  const breaker = afterFailures(7)
  passOf(breaker, start).note(true, start)
  passOf(breaker, start).note(false, start)
  passOf(breaker, start)
})

it('while the source is down, allows one probing call 5 s after the last failure', () => {
  const breaker = afterFailures(8)
  expect(breaker.enter(after(4.999))).toBeUndefined()
  const probe = passOf(breaker, after(5))
  // However long it takes, no other call is made meanwhile.
  expect(breaker.enter(after(14))).toBeUndefined()
  probe.note(false, after(15))
  expect(breaker.enter(after(15))).toBeUndefined()
  const next = passOf(breaker, after(20))
  next.note(true, after(21))
  passOf(breaker, after(21))
  passOf(breaker, after(21))
})

it('a call from before the outage does not count as the probe', () => {
  const breaker = createSourceBreaker()
  const slow = passOf(breaker, start)
  for (let n = 0; n < 8; n += 1) passOf(breaker, start).note(false, start)
  const probe = passOf(breaker, after(5))
  slow.note(false, after(6))
  expect(breaker.enter(after(11))).toBeUndefined()
  probe.note(true, after(12))
  passOf(breaker, after(12))
})

it('a returned pass goes to another caller', () => {
  const breaker = afterFailures(8)
  passOf(breaker, after(5)).drop()
  passOf(breaker, after(5))
  expect(breaker.enter(after(5))).toBeUndefined()
})

it('jitters its pauses, so that processes do not probe together', () => {
  const restsAt = (random: number, seconds: number) => {
    vi.mocked(Math.random).mockReturnValue(random)
    const breaker = createSourceBreaker()
    for (let n = 0; n < 8; n += 1) passOf(breaker, start).note(false, start)
    return breaker.enter(after(seconds)) === undefined
  }
  expect([restsAt(0, 3.999), restsAt(0, 4)]).toEqual([true, false])
  expect([restsAt(1, 5.999), restsAt(1, 6)]).toEqual([true, false])
})

it('a clock set back does not lengthen the pause', () => {
  passOf(afterFailures(8), after(-3600))
})
