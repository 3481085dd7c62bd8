import type { Counter } from 'prom-client'
import type { Amount, Shares } from './fair-share.ts'
import { isAboutTheData } from './postgres/errors.ts'

export type WriteBehindOptions<Row> = {
  write: (rows: readonly Row[]) => Promise<void>
  rowsPerWrite: number
  /** Size limit of one write. A larger row is written alone. */
  bytesPerWrite?: number
  /** The limits of waiting rows, in total and per owner. */
  room: Shares
  /** The owner of a row and its bytes in memory. By default all rows have one owner. */
  costOf?: (row: Row) => Cost
  /** Counts rows that exceed the room or that Postgres refuses. */
  dropped: Pick<Counter, 'inc'>
  wake: () => void
}

type Cost = { owner: string; bytes: number }

const noCost: Cost = { owner: '', bytes: 0 }

/** Writes rows in batches, outside the path that records them. `room` bounds the waiting rows. */
export function createWriteBehind<Row>(options: WriteBehindOptions<Row>) {
  const { write, rowsPerWrite, bytesPerWrite = Infinity, room, costOf = () => noCost, dropped, wake } = options
  let rows: Row[] = []
  /** A batch that Postgres refused once may succeed next time, for example once a partition is attached. */
  let wasRefused = false

  /** Halves a batch that Postgres refuses again, until the faulty row is alone. That row is dropped. */
  const writeApart = async (batch: readonly Row[], end: (rows: number) => void): Promise<void> => {
    try {
      await write(batch)
      end(batch.length)
    } catch (error) {
      const isRefused = isAboutTheData(error)
      if (!isRefused || !wasRefused) {
        wasRefused = isRefused
        throw error
      }
      if (batch.length === 1) {
        dropped.inc()
        return end(1)
      }
      const half = Math.ceil(batch.length / 2)
      await writeApart(batch.slice(0, half), end)
      await writeApart(batch.slice(half), end)
    }
  }

  return {
    add: (row: Row): void => {
      const { owner, bytes } = costOf(row)
      if (!room.isOpen(owner)) return dropped.inc()
      rows.push(row)
      room.add(owner, bytes)
      return wake()
    },
    /** Writes the oldest rows, which stay queued until then. `more`: others waited already, so nothing calls `wake`. */
    writeSome: async (): Promise<{ written: Amount; more: boolean }> => {
      const batch = firstBatch(rows, { rowsPerWrite, bytesPerWrite, costOf })
      if (batch.length === 0) return { written: { rows: 0, bytes: 0 }, more: false }
      const more = rows.length > batch.length
      const costs = batch.map(costOf)
      // Rows leave as they are written: a later half may fail. A round that exceeded its deadline may have removed them.
      let first = 0
      await writeApart(batch, (count) => {
        if (rows[0] === batch[first]) {
          rows = rows.slice(count)
          for (const { owner, bytes } of costs.slice(first, first + count)) room.remove(owner, bytes)
        }
        first += count
      })
      wasRefused = false
      return { written: { rows: batch.length, bytes: costs.reduce((sum, { bytes }) => sum + bytes, 0) }, more }
    },
    waiting: () => rows.length,
  }
}

type Limits<Row> = Required<Pick<WriteBehindOptions<Row>, 'rowsPerWrite' | 'bytesPerWrite' | 'costOf'>>

function firstBatch<Row>(rows: readonly Row[], { rowsPerWrite, bytesPerWrite, costOf }: Limits<Row>): Row[] {
  let bytes = 0
  const end = rows.findIndex((row, at) => {
    bytes += costOf(row).bytes
    return at === rowsPerWrite || (at > 0 && bytes > bytesPerWrite)
  })
  return end === -1 ? [...rows] : rows.slice(0, end)
}
