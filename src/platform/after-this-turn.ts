/**
 * Calls `work` once after the process has read what there is to read in this turn, however often
 * it is asked for in it: the first of a hundred that come together must not go alone, since
 * it would take as long as all of them.
 */
export function afterThisTurn(work: () => void): () => void {
  let isDue = false
  return () => {
    if (isDue) return
    isDue = true
    setImmediate(() => {
      isDue = false
      work()
    })
  }
}
