import type { ReceiverDeps } from '../program.ts'

/** What the readers of the on-call go by: the clock, the settings, and what this process knows of itself. */
export function readingOptions({
  settings,
  background,
  keys,
  clock,
  startedAt,
}: Pick<ReceiverDeps, 'settings' | 'background' | 'keys' | 'clock' | 'startedAt'>) {
  const { stuckAfterSeconds, fetchRatePerMinute } = settings
  return { now: clock(), stuckAfterSeconds, fetchRatePerMinute, silentAfterSeconds: background.silentAfterSeconds, startedAt, keys: keys() }
}
