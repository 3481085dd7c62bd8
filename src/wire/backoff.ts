/** How many times the provider sends a webhook that is not answered 2xx (spec, Delivery rules 2). */
export const webhookAttempts = 6

/**
 * The spec's pause between deliveries (Events, Delivery rules 3): doubles from `baseMs` up to `capMs`. `failures`
 * counts from 1, which gives `baseMs`.
 */
export function doublingPauseMs(failures: number, { baseMs, capMs }: { baseMs: number; capMs: number }): number {
  return Math.min(baseMs * 2 ** (failures - 1), capMs)
}

/** The doubling pause, randomised between half and all of it, so that many waiters do not retry at once. */
export function jitteredPauseMs(
  failures: number,
  limits: { baseMs: number; capMs: number },
  random: () => number,
): number {
  return Math.round(doublingPauseMs(failures, limits) * (0.5 + random() / 2))
}
