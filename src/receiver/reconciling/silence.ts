import cron from 'node-cron'

/** A run may take long, and a tick may be missed. */
const silentAfterTicks = 3
const minSilentSeconds = 300
const maxSilentSeconds = 86_400

/** Returns after how long without a run the reconciler counts as silent; undefined if it runs too rarely to decide. */
export function silentAfterSeconds(reconcileCron: string): number | undefined {
  const [next, after] = cron.createTask(reconcileCron, () => {}).getNextRuns(2)
  if (!next || !after) return undefined
  const seconds = ((after.getTime() - next.getTime()) / 1000) * silentAfterTicks
  return seconds > maxSilentSeconds ? undefined : Math.max(minSilentSeconds, seconds)
}
