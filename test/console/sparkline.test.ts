import { expect, it } from 'vitest'
import { sparkline } from '../../src/console/parts/sparkline.ts'

const drawn = (...samples: (number | null)[]) => sparkline({ samples, sample_seconds: 40 }).toString()

it('draws counts from 0 to the most of them, and says them in words', () => {
  const svg = drawn(0, 5, 10)
  expect(svg).toContain(' d="M2 20L48 11L94 2"')
  expect(svg).toMatch(/^<svg [^>]*role="img" aria-label="From 0 to 10 in 2\u00a0min, at most 10"/)
})

it('leaves gaps where nobody counted, and shows a count alone as a dot', () => {
  expect(drawn(4, null, 4, 4)).toContain(' d="M2 2h0M63.3 2L94 2"')
})

it.each([[[]], [[3]], [[null, 3]]])('draws nothing of %j', (samples) => {
  expect(drawn(...samples)).toBe('')
})

it('draws a line at the bottom while there is none', () => {
  expect(drawn(0, 0)).toContain(' d="M2 20L94 20"')
})
