import { expect, it } from 'vitest'
import { sparkline } from '../../../src/receiver/console/parts/sparkline.ts'

const drawn = (...samples: (number | null)[]) => sparkline({ samples, sample_seconds: 40 }).toString()

it('draws counts from 0 to their maximum, with a text alternative', () => {
  const svg = drawn(0, 5, 10)
  expect(svg).toContain(' d="M2 20H32.7V11H63.3V2H94"')
  expect(svg).toMatch(/^<svg [^>]*role="img" aria-label="From 0 to 10 in 2\u00a0min, at most 10"/)
})

it('leaves gaps without counts, and is level while a count is constant', () => {
  expect(drawn(4, null, 4, 4)).toContain(' d="M2 2H25M48 2H94"')
  expect(drawn(0, 4, 0)).toContain(' d="M2 20H32.7V2H63.3V20H94"')
})

it('states the time between its first and last count', () => {
  expect(drawn(null, null, 3, 0, null)).toContain('aria-label="From 3 to 0 in 80\u00a0s')
})

it.each([[[]], [[3]], [[null, 3]]])('draws nothing of %j', (samples) => {
  expect(drawn(...samples)).toBe('')
})

it('draws a line at the bottom for zero counts', () => {
  expect(drawn(0, 0)).toContain(' d="M2 20H94"')
})
