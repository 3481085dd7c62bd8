import type { Counter } from 'prom-client'
import type { Shares } from './fair-share.ts'
import { isAboutTheData } from './postgres/errors.ts'

export type WriteBehindOptions<Row> = {
  write: (rows: readonly Row[]) => Promise<void>
  rowsPerWrite: number
  /** Bounds one write as well; a row with more bytes goes alone. */
  bytesPerWrite?: number
  /** How much may wait, over all and of one owner. */
  room: Shares
  /** The owner of a row and its bytes in memory; rows without them count as rows of one owner. */
  costOf?: (row: Row) => Cost
  /** Counts rows for which there was no room, and rows that Postgres refuses. */
  dropped: Counter
  wake: () => void
}

type Cost = { owner: string; bytes: number }

export type WriteBehind<Row> = {
  add: (row: Row) => void
  /**
   * Writes the oldest rows; they wait until the write has succeeded. `more`: other rows waited already when
   * it began. Rows that came meanwhile have called `wake`.
   */
  writeSome: () => Promise<{ written: number; more: boolean }>
  waiting: () => number
}

const noCost: Cost = { owner: '', bytes: 0 }

/** Rows that are written in batches, off the path of what they record, and bounded while Postgres is away. */
export function createWriteBehind<Row>(options: WriteBehindOptions<Row>): WriteBehind<Row> {
  const { write, rowsPerWrite, bytesPerWrite = Infinity, room, costOf = () => noCost, dropped, wake } = options
  let rows: Row[] = []
  /** A batch that was refused once may go through the next time, for example while a day of the log is attached. */
  let wasRefused = false

  const nextBatch = (): Row[] => {
    let bytes = 0
    const end = rows.findIndex((row, at) => {
      bytes += costOf(row).bytes
      return at === rowsPerWrite || (at > 0 && bytes > bytesPerWrite)
    })
    return end === -1 ? [...rows] : rows.slice(0, end)
  }

  /** A batch that Postgres refuses again is halved until the row to blame stands alone. That row is dropped. */
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
      const { owner, bytes } = costOf(row)
      if (!room.isOpen(owner)) return dropped.inc()
      rows.push(row)
      room.add(owner, bytes)
      return wake()
    },
    writeSome: async () => {
      const batch = nextBatch()
      if (batch.length === 0) return { written: 0, more: false }
      const more = rows.length > batch.length
      await writeApart(batch)
      wasRefused = false
      // A round that was given up as too slow may have ended meanwhile.
      if (rows[0] === batch[0]) {
        rows = rows.slice(batch.length)
        for (const { owner, bytes } of batch.map(costOf)) room.remove(owner, bytes)
      }
      return { written: batch.length, more }
    },
    waiting: () => rows.length,
  }
}
