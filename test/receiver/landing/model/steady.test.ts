import { it } from 'vitest'
import { runHalf, timeoutMs } from './run-sequences.ts'

it('holds every invariant in random sequences of ordinary work', () => runHalf({ trouble: 1 }), timeoutMs)
