import { hash } from 'node:crypto'

/** A stream of numbers that depends only on the seed text. */
export type Random = {
  between: (low: number, high: number) => number
  /** A whole number from `low` to `high`, inclusive. */
  whole: (low: number, high: number) => number
  pick: <T>(items: readonly [T, ...T[]]) => T
}

/** Hashes the seed with a counter, which gives the same numbers on every machine. */
export function createRandom(seed: string): Random {
  let count = 0
  const next = () => hash('sha256', `${seed} ${count++}`, 'buffer').readUInt32LE() / 4_294_967_296
  const whole = (low: number, high: number) => low + Math.floor(next() * (high - low + 1))
  return {
    between: (low, high) => low + next() * (high - low),
    whole,
    pick: (items) => items[whole(0, items.length - 1)] ?? items[0],
  }
}
