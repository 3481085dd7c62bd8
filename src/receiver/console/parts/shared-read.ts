/** More than this at once is no person who looks. */
const maxKept = 50
/** Reading takes at most this share of the time: what takes long in an outage is done less often. */
const share = 0.05

/**
 * One read for all who ask for the same at about the same time, however many
 * tabs are open: those who come within `freshMs` of its beginning, or while it
 * runs, get the one that there is; so do those who come too soon after one that
 * took long. What failed is not kept.
 */
export function sharedReads<T>(freshMs: number): (name: string, read: () => Promise<T>) => Promise<T> {
  const kept = new Map<string, { value: Promise<T>; until: number }>()
  return (name, read) => {
    const begun = performance.now()
    for (const [other, { until }] of kept) if (begun >= until) kept.delete(other)
    const known = kept.get(name)
    if (known) return known.value
    if (kept.size >= maxKept) return read()
    const entry = { value: read(), until: Infinity }
    kept.set(name, entry)
    entry.value.then(
      () => (entry.until = begun + Math.max(freshMs, (performance.now() - begun) / share)),
      () => kept.delete(name),
    )
    return entry.value
  }
}
