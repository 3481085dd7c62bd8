/** More than this at once is no person who looks. */
const maxKept = 50

/**
 * One read for all who ask for the same at about the same time, however many
 * tabs are open: those who come within `freshMs` of its beginning, or while it
 * runs, get the one that there is. What failed is not kept.
 */
export function sharedReads<T>(freshMs: number): (name: string, read: () => Promise<T>) => Promise<T> {
  const kept = new Map<string, { begun: number; value: Promise<T>; running: boolean }>()
  return (name, read) => {
    const now = performance.now()
    for (const [other, { begun, running }] of kept) if (!running && now - begun >= freshMs) kept.delete(other)
    const known = kept.get(name)
    if (known) return known.value
    if (kept.size >= maxKept) return read()
    const entry = { begun: now, value: read(), running: true }
    kept.set(name, entry)
    entry.value.then(
      () => (entry.running = false),
      () => kept.delete(name),
    )
    return entry.value
  }
}
