import type { ReplayedMany } from './replay-many.ts'

/** Deliveries that fail for the same reason, with some of their ids. */
export type Failures = { message: string; count: number; delivery_ids: string[] }

export const shownFailures = 5

/** Groups failed deliveries by their message, the most frequent first. */
export function groupFailures(failed: ReplayedMany['failed']): Failures[] {
  const groups = new Map<string, Failures>()
  for (const { message, delivery_id } of failed) {
    const group = groups.get(message) ?? { message, count: 0, delivery_ids: [] }
    group.count += 1
    if (group.delivery_ids.length < shownFailures) group.delivery_ids.push(delivery_id)
    groups.set(message, group)
  }
  return [...groups.values()].toSorted((a, b) => b.count - a.count)
}
