import { setTimeout as delay } from 'node:timers/promises'

/** How long a delivery waits for its flush where acknowledging has all that it needs, and from where on it gets all that there is. */
const calmMs = 40
const fullMs = 300
/** How much of what was seen before counts beside the newest flush. */
const memory = 0.8
/** After this long without a flush nothing presses. */
const forgetAfterMs = 200
/** Under full pressure a background role rests this many times as long as it worked. */
const maxRestFactor = 9
const maxRestMs = 2000

export type Pressure = {
  /** Gets how long the first delivery of each flush waited for it. */
  note: (flush: { waitedMs: number }) => void
  /**
   * Rests after so much background work, for as long as deliveries press. As long
   * as each is written soon, the machine keeps up with acknowledging and everything
   * else. The longer they wait, the smaller is the share of the rest, which catches
   * up afterwards. How many are stored together says nothing: a flush that holds
   * many costs little, and what is not landed meanwhile costs more later, since it
   * has to be claimed and read back.
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
  let waitedMs = 0
  let notedAt = -Infinity

  const restFactor = () => {
    if (performance.now() - notedAt > forgetAfterMs) return 0
    const pressing = (waitedMs - calmMs) / (fullMs - calmMs)
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
    note: ({ waitedMs: newest }) => {
      const isForgotten = performance.now() - notedAt > forgetAfterMs
      waitedMs = isForgotten ? newest : waitedMs * memory + newest * (1 - memory)
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
