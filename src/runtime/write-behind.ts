import type { Counter } from 'prom-client'

export type WriteBehindOptions<Row> = {
  write: (rows: readonly Row[]) => Promise<void>
  rowsPerWrite: number
  /** Bounds one write in the measure of `weightOf` as well; a row that is heavier goes alone. */
  weightPerWrite?: number
  /** How much may wait, in the measure of `weightOf`: rows, unless it says otherwise. */
  maxWeight: number
  weightOf?: (row: Row) => number
  /** Of what is alike so much may wait, so that a flood of one kind leaves room for the others. */
  groups?: { of: (row: Row) => string; maxWeight: number }
  /** Counts what there was no room for. */
  dropped: Counter
  wake: () => void
}

export type WriteBehind<Row> = {
  add: (row: Row) => void
  /** Whether so much more of a group would have room. */
  hasRoom: (weight: number, group?: string) => boolean
  /** Writes the oldest ones, which wait until that has succeeded. */
  writeSome: () => Promise<{ written: number; more: boolean }>
  waiting: () => number
}

/** Rows that are written in batches, off the path of what they tell of, and bounded while Postgres is away. */
export function createWriteBehind<Row>(options: WriteBehindOptions<Row>): WriteBehind<Row> {
  const { write, rowsPerWrite, weightPerWrite = Infinity, maxWeight, weightOf = () => 1, groups, dropped, wake } = options
  let rows: Row[] = []
  let weight = 0
  const groupWeights = new Map<string, number>()

  const hasRoom = (more: number, group?: string): boolean => {
    if (weight + more > maxWeight) return false
    if (!groups || group === undefined) return true
    const ofGroup = groupWeights.get(group) ?? 0
    return ofGroup === 0 || ofGroup + more <= groups.maxWeight
  }
  /** Puts a weight on, or takes it off again. */
  const weigh = (row: Row, sign: 1 | -1): void => {
    const change = sign * weightOf(row)
    weight += change
    if (!groups) return
    const group = groups.of(row)
    const left = (groupWeights.get(group) ?? 0) + change
    if (left > 0) groupWeights.set(group, left)
    else groupWeights.delete(group)
  }
  const nextBatch = (): Row[] => {
    let batchWeight = 0
    let length = 0
    for (const row of rows) {
      batchWeight += weightOf(row)
      if (length === rowsPerWrite || (length > 0 && batchWeight > weightPerWrite)) break
      length += 1
    }
    return rows.slice(0, length)
  }

  return {
    add: (row) => {
      if (!hasRoom(weightOf(row), groups?.of(row))) return dropped.inc()
      rows.push(row)
      weigh(row, 1)
      return wake()
    },
    hasRoom,
    writeSome: async () => {
      const batch = nextBatch()
      if (batch.length === 0) return { written: 0, more: false }
      await write(batch)
      // A round that was given up as too slow may have come to its end meanwhile.
      if (rows[0] === batch[0]) {
        rows = rows.slice(batch.length)
        batch.forEach((row) => weigh(row, -1))
      }
      return { written: batch.length, more: rows.length > 0 }
    },
    waiting: () => rows.length,
  }
}
