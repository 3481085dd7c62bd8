import { describe, expect, it } from 'vitest'
import { giveUpClock } from '../../../src/receiver/queries/give-ups.ts'

const lastSeenAt = new Date('2026-01-01T00:00:00Z')
const at = (seconds: number) => new Date(lastSeenAt.getTime() + seconds * 1000).toISOString()
const clock = (attempts: number, secondsSince: number) =>
  giveUpClock({ attempts, lastSeenAt, now: new Date(at(secondsSince)) })

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
      attempts_spent: attempts,
      next_attempt_at: at(next),
      last_attempt_at: at(last),
      given_up: false,
    })
  })

  it.each([6, 7, 100])('%i seen: it has given up with the last one', (attempts) => {
    expect(clock(attempts, 1)).toEqual({
      attempts_spent: 6,
      next_attempt_at: null,
      last_attempt_at: at(0),
      given_up: true,
    })
  })

  it('an attempt that is late by two dispatch ticks counts as made elsewhere', () => {
    expect(clock(1, 90)).toMatchObject({ attempts_spent: 1, next_attempt_at: at(30) })
    expect(clock(1, 91)).toMatchObject({
      attempts_spent: 2,
      next_attempt_at: at(90),
      last_attempt_at: at(930),
      given_up: false,
    })
  })

  it('long after the last seen attempt, all attempts count as made', () => {
    expect(clock(1, 991)).toEqual({
      attempts_spent: 6,
      next_attempt_at: null,
      last_attempt_at: at(930),
      given_up: true,
    })
    expect(clock(1, 989)).toMatchObject({ attempts_spent: 5, given_up: false })
  })
})
