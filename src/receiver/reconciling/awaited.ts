export type Awaited = {
  /** Notes that somebody waits for a request; call what it gives back when they do no longer. */
  add: (requestId: string) => () => void
  ids: () => readonly string[]
}

/** The requests whose results somebody waits for in this process: the calls that are left go to them first. */
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
