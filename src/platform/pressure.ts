import { setTimeout as delay } from 'node:timers/promises'

/**
 * The deliveries that still wait after a flush, counted in flushes of its size and averaged. Below the first number no
 * background role gives way, from the second on all give way fully.
 */
const calmFlushes = 0.5
const fullFlushes = 3
/** The weight of earlier flushes beside the newest. */
const memory = 0.8
/** After this long without a flush there is no pressure. */
const forgetAfterMs = 200
/**
 * Under full pressure a background role pauses this many times as long as it worked, which leaves it a tenth of the
 * time.
 */
const maxPauseFactor = 9
const maxPauseMs = 2000

export type Pressure = {
  /** Records the size of a flush, and the number of deliveries still waiting after it. */
  note: (flush: { deliveries: number; left: number }) => void
  /**
   * Pauses after background work, if there is pressure. A flush takes all deliveries that arrived during the previous
   * one, so while none is left waiting, acknowledging keeps up, even with slow commits. The more are left, the longer
   * the pause. The size of a flush does not matter, since rows in one statement cost little.
   */
  giveWay: (workedMs: number, signal: AbortSignal, mustGoOn?: () => boolean) => Promise<void>
  /**
   * Runs a round of background work and gives way after it. Roles that would lose data pass `mustGoOn`, which ends the
   * pause.
   */
  paced: <T>(round: () => Promise<T>, signal: AbortSignal, mustGoOn?: () => boolean) => Promise<T>
}

/** Measures how far acknowledging falls behind in this process. Landing and the logs give way to it. */
export function createPressure(): Pressure {
  let flushesLeft = 0
  let notedAt = -Infinity

  const pauseFactor = () => {
    if (performance.now() - notedAt > forgetAfterMs) return 0
    const pressing = (flushesLeft - calmFlushes) / (fullFlushes - calmFlushes)
    return Math.min(1, Math.max(0, pressing)) * maxPauseFactor
  }

  const giveWay: Pressure['giveWay'] = async (workedMs, signal, mustGoOn = () => false) => {
    const started = performance.now()
    const left = () => Math.min(maxPauseMs, workedMs * pauseFactor()) - (performance.now() - started)
    while (left() > 0 && !signal.aborted && !mustGoOn()) {
      await delay(Math.min(Math.max(1, left()), forgetAfterMs / 2), undefined, { signal }).catch(() => {})
    }
  }

  return {
    note: ({ deliveries, left }) => {
      const isForgotten = performance.now() - notedAt > forgetAfterMs
      // Bounded, so that a burst does not count longer than other flushes.
      const newest = Math.min(left / deliveries, fullFlushes)
      flushesLeft = isForgotten ? newest : flushesLeft * memory + newest * (1 - memory)
      notedAt = performance.now()
    },
    giveWay,
    paced: async (round, signal, mustGoOn) => {
      const started = performance.now()
      const result = await round()
      await giveWay(performance.now() - started, signal, mustGoOn)
      return result
    },
  }
}
