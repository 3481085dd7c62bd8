import { describe, expect, it } from 'vitest'
import { giveUpClock } from '../../../src/receiver/queries/give-up.ts'

const lastSeenAt = new Date('2026-01-01T00:00:00Z')
const at = (seconds: number) => new Date(lastSeenAt.getTime() + seconds * 1000)
const clock = (attempts: number, secondsSince: number) => giveUpClock({ attempts, lastSeenAt, now: at(secondsSince) })

describe("the provider's clock", () => {
  // Six attempts at 0, 30, 90, 210, 450 and 930 s after the first (spec, delivery rules).
  it.each([
    [1, 30, 930],
    [2, 60, 900],
    [3, 120, 840],
    [4, 240, 720],
    [5, 480, 480],
  ])('%i seen just now: the next %i s later, the last %i s later', (attempts, next, last) => {
    expect(clock(attempts, 1)).toEqual({
      attemptsSpent: attempts,
      nextAttemptAt: at(next),
      lastAttemptAt: at(last),
      givenUp: false,
    })
  })

  it.each([6, 7, 100])('%i seen: it has given up with the last one', (attempts) => {
    expect(clock(attempts, 1)).toEqual({
      attemptsSpent: 6,
      nextAttemptAt: undefined,
      lastAttemptAt: at(0),
      givenUp: true,
    })
  })

  it('an attempt that is late by two dispatch ticks counts as made elsewhere', () => {
    expect(clock(1, 90)).toMatchObject({ attemptsSpent: 1, nextAttemptAt: at(30) })
    expect(clock(1, 91)).toMatchObject({
      attemptsSpent: 2,
      nextAttemptAt: at(90),
      lastAttemptAt: at(930),
      givenUp: false,
    })
  })

  it('long after the last seen attempt, all attempts count as made', () => {
    expect(clock(1, 991)).toEqual({ attemptsSpent: 6, nextAttemptAt: undefined, lastAttemptAt: at(930), givenUp: true })
    expect(clock(1, 989)).toMatchObject({ attemptsSpent: 5, givenUp: false })
  })
})
