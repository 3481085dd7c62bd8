import type { ReplayedMany } from './replay-many.ts'

/** Deliveries that fail alike: what is said once is read. */
export type Failures = { message: string; count: number; delivery_ids: string[] }

export const shownFailures = 5

/** Groups them by what is said of them, the most first; `before` are those of earlier rounds. */
export function groupFailures(failed: ReplayedMany['failed'], before: readonly Failures[] = []): Failures[] {
  const groups = new Map(before.map((one) => [one.message, { ...one, delivery_ids: [...one.delivery_ids] }]))
  for (const { message, delivery_id } of failed) {
    const group = groups.get(message) ?? { message, count: 0, delivery_ids: [] }
    group.count += 1
    if (group.delivery_ids.length < shownFailures) group.delivery_ids.push(delivery_id)
    groups.set(message, group)
  }
  return [...groups.values()].toSorted((a, b) => b.count - a.count)
}
