import { setTimeout as delay } from 'node:timers/promises'

/** How many more flushes still wait where acknowledging has all that it needs, and from where on it gets all that there is. */
const calmFlushes = 0.5
const fullFlushes = 3
/** How much of what was seen before counts beside the newest flush. */
const memory = 0.8
/** After this long without a flush nothing presses. */
const forgetAfterMs = 200
/** Under full pressure a background role rests this many times as long as it worked. */
const maxRestFactor = 9
const maxRestMs = 2000

export type Pressure = {
  /** Gets the size of each flush, and how many it had to leave. */
  note: (flush: { deliveries: number; left: number }) => void
  /**
   * Rests after so much background work, for as long as deliveries press. A flush
   * takes all that arrived during the one before: as long as it can, acknowledging
   * keeps up, however slow a commit is. The more it has to leave, the smaller is the
   * share of the rest, which catches up afterwards. How many it holds says nothing:
   * many together cost little each, and what is not landed meanwhile costs more
   * later, since it has to be claimed and read back.
   */
  rest: (workedMs: number, signal: AbortSignal, mustGoOn?: () => boolean) => Promise<void>
  /**
   * Runs a round of background work and rests after it.
   * There is no rest while `mustGoOn`: a role that is bounded would lose something by it.
   */
  paced: <T>(round: () => Promise<T>, signal: AbortSignal, mustGoOn?: () => boolean) => Promise<T>
}

/** How hard deliveries press on this process just now. */
export function createPressure(): Pressure {
  let flushesLeft = 0
  let notedAt = -Infinity

  const restFactor = () => {
    if (performance.now() - notedAt > forgetAfterMs) return 0
    const pressing = (flushesLeft - calmFlushes) / (fullFlushes - calmFlushes)
    return Math.min(1, Math.max(0, pressing)) * maxRestFactor
  }

  const rest: Pressure['rest'] = async (workedMs, signal, mustGoOn = () => false) => {
    const started = performance.now()
    const left = () => Math.min(maxRestMs, workedMs * restFactor()) - (performance.now() - started)
    while (left() > 0 && !signal.aborted && !mustGoOn()) {
      await delay(Math.min(Math.max(1, left()), forgetAfterMs / 2), undefined, { signal }).catch(() => {})
    }
  }

  return {
    note: ({ deliveries, left }) => {
      const isForgotten = performance.now() - notedAt > forgetAfterMs
      // No more than counts: a moment in which very many came must not be remembered for longer than others.
      const newest = Math.min(left / deliveries, fullFlushes)
      flushesLeft = isForgotten ? newest : flushesLeft * memory + newest * (1 - memory)
      notedAt = performance.now()
    },
    rest,
    paced: async (round, signal, mustGoOn) => {
      const started = performance.now()
      const result = await round()
      await rest(performance.now() - started, signal, mustGoOn)
      return result
    },
  }
}
