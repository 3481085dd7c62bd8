/** The most reads that are shared at a time. Persons never cause more. */
const maxKeptReads = 50

/**
 * Shares one read among all calls for the same name while it runs, for `freshMs` from its start, and for longer after a
 * slow read. Failed reads are not kept.
 */
export function sharedReads<T>(freshMs: number): (name: string, read: () => Promise<T>) => Promise<T> {
  const kept = new Map<string, { value: Promise<T>; until: number }>()
  return (name, read) => {
    const begun = performance.now()
    for (const [other, { until }] of kept) if (begun >= until) kept.delete(other)
    const known = kept.get(name)
    if (known) return known.value
    if (kept.size >= maxKeptReads) return read()
    const entry = { value: read(), until: Infinity }
    kept.set(name, entry)
    entry.value.then(
      // Reading takes at most a twentieth of the time, so that slow reads are repeated less often.
      () => (entry.until = begun + Math.max(freshMs, (performance.now() - begun) * 20)),
      () => kept.delete(name),
    )
    return entry.value
  }
}
