import { it } from 'vitest'
import type { Command, Signer } from './commands.ts'
import { runHalf, timeoutMs } from './run-sequences.ts'

const signed = (signer: Signer): Command => {
  return { do: 'webhook', request: 0, says: 'OK', variant: 0, id: 0, signer, ageSeconds: 0, handedOver: false }
}

const work: Command = { do: 'work' }

/** A live key signs a webhook again that landed with a sandbox key: the same state lands in the other environment. */
const examples: Command[][] = [
  [signed('sandbox'), work, signed('live'), work],
  // The live key is configured later, so the webhook waits in the quarantine.
  [signed('late'), signed('sandbox'), work, { do: 'verify quarantine' }, { do: 'wait', seconds: 7 }, work],
]

it('holds every invariant in random sequences of ordinary work', () => runHalf({ trouble: 1, examples }), timeoutMs)
