/**
 * The spec's delivery pauses (Events, Delivery rules 3): doubling from `baseMs`,
 * capped at `capMs`. `failures` counts from 1: the first pause is `baseMs`.
 */
export function doublingPauseMs(failures: number, { baseMs, capMs }: { baseMs: number; capMs: number }): number {
  return Math.min(baseMs * 2 ** (failures - 1), capMs)
}

/** The same pause spread over [half, whole], so that many waiters do not come back at once. */
export function jitteredPauseMs(
  failures: number,
  limits: { baseMs: number; capMs: number },
  random: () => number,
): number {
  return Math.round(doublingPauseMs(failures, limits) * (0.5 + random() / 2))
}
