import { createTimedSet } from '../../platform/timed-set.ts'
import type { Keys } from '../domain/keys.ts'
import { queueOf } from './due.ts'

export type RestingQueues = ReturnType<typeof createRestingQueues>

/**
 * Keeps the poll queues whose key has no call left, for `ms` each, so that claims leave them out. Extra polls have fewer
 * calls than the others, so a queue rests apart for them.
 */
export function createRestingQueues({ clock, keys }: { clock: () => Date; keys: () => Keys }, ms: number) {
  const [scheduled, extra] = [createTimedSet(clock, ms), createTimedSet(clock, ms)]
  return {
    /** The resting queues, for a claim. */
    queues: () => ({ resting: scheduled.present(), restingExtra: extra.present() }),
    /** True while the key of a request has no call. */
    isResting: (keyName: string) => scheduled.present().has(queueOf(keys(), keyName)),
    /** Lets the queue of a poll without a call rest. */
    add: (one: { key_name: string | null; is_extra: boolean }) =>
      (one.is_extra ? extra : scheduled).add(queueOf(keys(), one.key_name)),
  }
}
