/** A second statement begins beside the first only when this many rows wait: it costs as much as tens of rows. */
export const worthSecondRows = 64

export type GatherOptions = {
  /** Batches of a steady load begin this far apart. */
  ms: number
  /** So many rows never wait. */
  enoughRows: number
  /** Called when rows that had to wait may begin. */
  wake: () => void
}

/**
 * Lets the rows of a steady load gather, since a statement costs as much as tens of rows. Returns a function that
 * answers whether a batch of so many rows may begin now.
 *
 * A batch that comes alone begins at once. A batch that follows another closely waits, while such waits bring more
 * rows. They bring none where each sender waits for its answer before it sends again.
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
    // The weight of the newest wait beside earlier ones.
    rowsGained += (rows - wait.rows - rowsGained) * 0.25
    wait = undefined
  }

  return (rows) => {
    const now = performance.now()
    const leftMs = beganAt + ms - now
    if (rows < enoughRows) {
      if (wait && !wait.isOver) return false
      // One batch of so many tries whether a wait brings rows again.
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
