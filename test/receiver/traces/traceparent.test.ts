import { expect, it } from 'vitest'
import { parseTraceparent } from '../../../src/receiver/domain/trace.ts'

const traceId = '4bf92f3577b34da6a3ce929d0e0e4736'
const spanId = '00f067aa0ba902b7'

it.each([
  [`00-${traceId}-${spanId}-01`, true],
  [`00-${traceId}-${spanId}-00`, false],
  // Other flags than ours may come.
  [`00-${traceId}-${spanId}-fe`, false],
  [`00-${traceId}-${spanId}-03`, true],
  // A later version may append fields.
  [`01-${traceId}-${spanId}-01-more`, true],
  [`cc-${traceId}-${spanId}-01`, true],
])('%s is valid', (text, isSampled) => {
  expect(parseTraceparent(text)).toEqual({ traceId, spanId, isSampled })
})

it.each([
  '',
  traceId,
  `ff-${traceId}-${spanId}-01`,
  `00-${traceId}-${spanId}-01-more`,
  `00-${traceId}-${spanId}-01-`,
  `01-${traceId}-${spanId}-01more`,
  `00-${traceId.toUpperCase()}-${spanId}-01`,
  `00-${'0'.repeat(32)}-${spanId}-01`,
  `00-${traceId}-${'0'.repeat(16)}-01`,
  `00-${traceId}-${spanId}-1`,
  `00-${traceId}-${spanId}-01, 00-${traceId}-${spanId}-01`,
  ` 00-${traceId}-${spanId}-01`,
])('"%s" is invalid', (text) => {
  expect(parseTraceparent(text)).toBeUndefined()
})
