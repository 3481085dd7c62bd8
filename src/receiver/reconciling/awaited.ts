export type Awaited = {
  /** Records that a caller waits for a request. Call the returned function when the wait ends. */
  add: (requestId: string) => () => void
  ids: () => readonly string[]
}

/** Keeps the requests that callers of this process wait for. Remaining calls go to these first. */
export function createAwaited(): Awaited {
  const waiting = new Map<string, number>()
  return {
    add: (requestId) => {
      waiting.set(requestId, (waiting.get(requestId) ?? 0) + 1)
      return () => {
        const others = (waiting.get(requestId) ?? 1) - 1
        if (others > 0) waiting.set(requestId, others)
        else waiting.delete(requestId)
      }
    },
    ids: () => [...waiting.keys()],
  }
}
