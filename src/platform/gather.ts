/** A statement costs as much as tens of rows, so a second one runs beside the first only if this many rows wait. */
export const rowsForSecondStatement = 64

export type GatherOptions = {
  /** Batches of a steady load begin at least this far apart. */
  ms: number
  /** A batch of this many rows never waits. */
  enoughRows: number
  /** Called when a batch that had to wait may begin. */
  wake: () => void
}

/**
 * Lets the rows of a steady load gather, since a statement costs as much as tens of rows. The returned function returns
 * true if a batch of this many rows may begin now.
 *
 * A batch that comes alone begins at once. A batch that closely follows another waits, if earlier waits gained rows.
 * They gain none where each sender waits for its answer before it sends again.
 */
export function createGather({ ms, enoughRows, wake }: GatherOptions): (rows: number) => boolean {
  let beganAt = -Infinity
  let rowsGained = 0
  let batches = 0
  let wait: { rows: number; timer: NodeJS.Timeout; isOver: boolean } | undefined

  const beginWait = (rows: number, leftMs: number) => {
    const timer = setTimeout(() => {
      if (wait) wait.isOver = true
      wake()
    }, leftMs)
    wait = { rows, timer, isOver: false }
  }
  const endWait = (rows: number) => {
    if (!wait) return
    clearTimeout(wait.timer)
    // A moving average: the newest wait has a weight of a quarter.
    rowsGained += (rows - wait.rows - rowsGained) * 0.25
    wait = undefined
  }

  return (rows) => {
    const now = performance.now()
    const leftMs = beganAt + ms - now
    if (rows < enoughRows) {
      if (wait && !wait.isOver) return false
      // One batch of 16 waits anyway, to find out if waits gain rows again.
      if (!wait && leftMs > 0 && (rowsGained >= 1 || (batches + 1) % 16 === 0)) {
        beginWait(rows, leftMs)
        return false
      }
    }
    endWait(rows)
    batches += 1
    beganAt = now
    return true
  }
}
