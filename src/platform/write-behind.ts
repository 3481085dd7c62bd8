import type { Counter } from 'prom-client'
import { isAboutTheData } from './postgres/errors.ts'

export type WriteBehindOptions<Row> = {
  write: (rows: readonly Row[]) => Promise<void>
  rowsPerWrite: number
  /** How many may wait. */
  maxRows: number
  /** Counts what there was no room for, and what Postgres refuses. */
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
export function createWriteBehind<Row>({
  write,
  rowsPerWrite,
  maxRows,
  dropped,
  wake,
}: WriteBehindOptions<Row>): WriteBehind<Row> {
  let rows: Row[] = []

  /** A batch that was refused once may go through the next time: a day of the log was just being attached, for example. */
  let wasRefused = false

  /** A batch that Postgres refuses again is halved until the row that is to blame stands alone, and is dropped. */
  const writeApart = async (batch: readonly Row[]): Promise<void> => {
    try {
      await write(batch)
    } catch (error) {
      const isRefused = isAboutTheData(error)
      if (!isRefused || !wasRefused) {
        wasRefused = isRefused
        throw error
      }
      if (batch.length === 1) return dropped.inc()
      const half = Math.ceil(batch.length / 2)
      await writeApart(batch.slice(0, half))
      await writeApart(batch.slice(half))
    }
  }

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
      await writeApart(batch)
      wasRefused = false
      // A round that was given up as too slow may have come to its end meanwhile.
      if (rows[0] === batch[0]) rows = rows.slice(batch.length)
      return { written: batch.length, more }
    },
    waiting: () => rows.length,
  }
}
