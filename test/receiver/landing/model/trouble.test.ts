import { it } from 'vitest'
import { runHalf, timeoutMs } from './run-sequences.ts'

it(
  'holds every invariant in random sequences full of crashes, faults and jumps of the clock',
  () => runHalf({ trouble: 5 }),
  timeoutMs,
)
