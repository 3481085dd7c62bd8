import type { Counter } from 'prom-client'

export type WriteBehindOptions<Row> = {
  write: (rows: readonly Row[]) => Promise<void>
  rowsPerWrite: number
  /** How many may wait. */
  maxRows: number
  /** Counts what there was no room for. */
  dropped: Counter
  wake: () => void
}

export type WriteBehind<Row> = {
  add: (row: Row) => void
  /** Writes the oldest ones, which wait until that has succeeded. `more`: some waited already that did not go with them; whatever came meanwhile has called `wake`. */
  writeSome: () => Promise<{ written: number; more: boolean }>
  waiting: () => number
}

/** Rows that are written in batches, off the path of what they tell of, and bounded while Postgres is away. */
export function createWriteBehind<Row>({ write, rowsPerWrite, maxRows, dropped, wake }: WriteBehindOptions<Row>): WriteBehind<Row> {
  let rows: Row[] = []

  return {
    add: (row) => {
      if (rows.length >= maxRows) return dropped.inc()
      rows.push(row)
      return wake()
    },
    writeSome: async () => {
      const batch = rows.slice(0, rowsPerWrite)
      if (batch.length === 0) return { written: 0, more: false }
      const more = rows.length > batch.length
      await write(batch)
      // A round that was given up as too slow may have come to its end meanwhile.
      if (rows[0] === batch[0]) rows = rows.slice(batch.length)
      return { written: batch.length, more }
    },
    waiting: () => rows.length,
  }
}
