import type { Counter } from 'prom-client'
import { createFairShares, type Held } from './fair-shares.ts'

export type FairBacklogOptions<Row> = {
  write: (rows: readonly Row[]) => Promise<void>
  rowsPerWrite: number
  /** Bounds one write in the measure of `weightOf` as well; a row that is heavier goes alone. */
  weightPerWrite: number
  /** How much may wait, in the measure of `weightOf`. */
  maxWeight: number
  weightOf: (row: Row) => number
  /** Whose row it is, the most general share first. */
  pathOf: (row: Row) => readonly string[]
  /** Counts what there was no room for. */
  dropped: Counter
  wake: () => void
}

export type FairBacklog<Row> = {
  add: (row: Row) => void
  /** Whether so much more would be kept. */
  hasRoom: (weight: number, path: readonly string[]) => boolean
  /** Writes the oldest ones, which wait until that has succeeded. */
  writeSome: () => Promise<{ written: number; more: boolean }>
  waiting: () => number
}

/**
 * Rows that are written in batches, the oldest first. Where there is no room for
 * another, the newest of whoever has most is dropped: a flood costs itself.
 */
export function createFairBacklog<Row>({
  write,
  rowsPerWrite,
  weightPerWrite,
  maxWeight,
  weightOf,
  pathOf,
  dropped,
  wake,
}: FairBacklogOptions<Row>): FairBacklog<Row> {
  const shares = createFairShares<Row>()
  let queue: Held<Row>[] = []
  let waiting = 0

  const leave = (held: Held<Row>): void => {
    if (held.isGone) return
    shares.take(held)
    waiting -= 1
  }
  const sweep = (): void => {
    if (queue.length > 2 * (waiting + rowsPerWrite)) queue = queue.filter(({ isGone }) => !isGone)
  }
  const nextBatch = (): { held: Held<Row>[]; rows: Row[] } => {
    const held: Held<Row>[] = []
    const rows: Row[] = []
    let batchWeight = 0
    for (const one of queue) {
      if (one.item === undefined) continue
      batchWeight += one.weight
      if (rows.length === rowsPerWrite || (rows.length > 0 && batchWeight > weightPerWrite)) break
      held.push(one)
      rows.push(one.item)
    }
    return { held, rows }
  }

  return {
    add: (row) => {
      queue.push(shares.add(pathOf(row), row, weightOf(row)))
      waiting += 1
      while (shares.weight() > maxWeight && shares.takeFromHeaviest()) {
        waiting -= 1
        dropped.inc()
      }
      sweep()
      wake()
    },
    hasRoom: (weight, path) => shares.weight() + weight <= maxWeight || !shares.wouldBeHeaviest(path, weight),
    writeSome: async () => {
      const { held, rows } = nextBatch()
      if (rows.length === 0) return { written: 0, more: false }
      await write(rows)
      // A round that was given up as too slow may have come to its end meanwhile.
      held.forEach(leave)
      sweep()
      return { written: rows.length, more: waiting > 0 }
    },
    waiting: () => waiting,
  }
}
