import { setTimeout as delay } from 'node:timers/promises'

/** Deliveries in one flush from which on the receiver counts as busy. */
const busyBatch = 32
const busyForMs = 200
/** While it is busy, a background role rests this many times as long as it worked. */
const restFactor = 9
const maxRestMs = 2000

export type Pressure = {
  /** Gets the size of each flush. */
  note: (deliveries: number) => void
  /**
   * Runs a round of background work. Acknowledging comes first: while
   * deliveries arrive faster than one by one, the round is followed by a rest,
   * so that landing and logging keep a bounded share of the machine and catch up afterwards.
   * There is no rest while `mustGoOn`: a role that is bounded would lose something by it.
   */
  paced: <T>(round: () => Promise<T>, signal: AbortSignal, mustGoOn?: () => boolean) => Promise<T>
}

/** How hard deliveries press on this process just now. */
export function createPressure(): Pressure {
  let busyUntil = 0
  return {
    note: (deliveries) => {
      if (deliveries >= busyBatch) busyUntil = performance.now() + busyForMs
    },
    paced: async (round, signal, mustGoOn = () => false) => {
      const started = performance.now()
      const result = await round()
      const restUntil = Math.min(performance.now() + maxRestMs, performance.now() + (performance.now() - started) * restFactor)
      while (performance.now() < Math.min(busyUntil, restUntil) && !signal.aborted && !mustGoOn()) {
        await delay(Math.max(1, Math.min(busyUntil, restUntil) - performance.now()), undefined, { signal }).catch(() => {})
      }
      return result
    },
  }
}
