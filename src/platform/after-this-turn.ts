/**
 * Calls `work` once at the end of this turn of the event loop, however often it is requested in the turn. Requests that
 * arrive together are then handled together, instead of the first one alone.
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
