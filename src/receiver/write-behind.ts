import type { Counter } from 'prom-client'

export type WriteBehindOptions<Row> = {
  write: (rows: readonly Row[]) => Promise<void>
  rowsPerWrite: number
  /** How much may wait, in the measure of `weightOf`: rows, unless it says otherwise. */
  maxWeight: number
  weightOf?: (row: Row) => number
  /** Counts what there was no room for. */
  dropped: Counter
  wake: () => void
}

export type WriteBehind<Row> = {
  add: (row: Row) => void
  /** The latest one that is not being written yet, and so may still be changed. */
  findLast: (isLike: (row: Row) => boolean) => Row | undefined
  /** Writes the oldest ones, which wait until that has succeeded. */
  writeSome: () => Promise<{ written: number; more: boolean }>
  waiting: () => number
}

/** Rows that are written in batches, off the path of what they tell of, and bounded while Postgres is away. */
export function createWriteBehind<Row>({ write, rowsPerWrite, maxWeight, weightOf = () => 1, dropped, wake }: WriteBehindOptions<Row>): WriteBehind<Row> {
  let rows: Row[] = []
  let weight = 0
  let beingWritten = 0

  return {
    add: (row) => {
      if (weight + weightOf(row) > maxWeight) return dropped.inc()
      rows.push(row)
      weight += weightOf(row)
      return wake()
    },
    findLast: (isLike) => rows.findLast((row, at) => at >= beingWritten && isLike(row)),
    writeSome: async () => {
      const batch = rows.slice(0, rowsPerWrite)
      if (batch.length === 0) return { written: 0, more: false }
      beingWritten = batch.length
      try {
        await write(batch)
      } finally {
        beingWritten = 0
      }
      // A round that was given up as too slow may have come to its end meanwhile.
      if (rows[0] === batch[0]) {
        rows = rows.slice(batch.length)
        weight -= batch.reduce((sum, row) => sum + weightOf(row), 0)
      }
      return { written: batch.length, more: rows.length > 0 }
    },
    waiting: () => rows.length,
  }
}
