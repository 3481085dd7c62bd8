import { expect, it } from 'vitest'
import { createProviderBreaker } from '../../../src/receiver/fetching/provider-breaker.ts'

const start = new Date('2026-01-01T00:00:00Z')
const after = (seconds: number) => new Date(start.getTime() + seconds * 1000)

function afterFailures(failures: number) {
  const breaker = createProviderBreaker()
  for (let n = 0; n < failures; n += 1) breaker.note(false, start)
  return breaker
}

it('lets a provider be called until it has failed eight times in a row', () => {
  expect(afterFailures(7).restsUntil(start)).toBeUndefined()
  expect(afterFailures(8).restsUntil(start)).toEqual(after(15))
  const breaker = afterFailures(7)
  breaker.note(true, start)
  breaker.note(false, start)
  expect(breaker.restsUntil(start)).toBeUndefined()
})

it('while it is down one call in 15 s finds out whether it is back', () => {
  const breaker = afterFailures(8)
  expect(breaker.restsUntil(after(14.999))).toEqual(after(15))
  expect(breaker.restsUntil(after(15))).toBeUndefined()
  expect(breaker.restsUntil(after(15))).toEqual(after(30))
  breaker.note(false, after(20))
  expect(breaker.restsUntil(after(30))).toEqual(after(35))
  expect(breaker.restsUntil(after(35))).toBeUndefined()
  breaker.note(true, after(36))
  expect(breaker.restsUntil(after(36))).toBeUndefined()
})

it('a clock that was put back makes the pause no longer', () => {
  const breaker = afterFailures(8)
  expect(breaker.restsUntil(after(-3600))).toBeUndefined()
  expect(breaker.restsUntil(after(-3600))).toEqual(after(-3600 + 15))
})
