/** Keeps the requests that callers of this process wait for. Remaining calls go to these first. */
export function createAwaited() {
  const waiting = new Set<{ requestId: string }>()
  return {
    /** Records that a caller waits for a request. Call the returned function when the wait ends. */
    add: (requestId: string): (() => void) => {
      const wait = { requestId }
      waiting.add(wait)
      return () => void waiting.delete(wait)
    },
    ids: (): readonly string[] => [...new Set([...waiting].map(({ requestId }) => requestId))],
  }
}
