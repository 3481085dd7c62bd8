import cron from 'node-cron'

/** A run may take its time, and a tick be missed. */
const silentAfterTicks = 3
const minSilentSeconds = 300
const maxSilentSeconds = 86_400

/** After this long without a run the reconciler counts as silent; undefined where it runs too seldom to tell. */
export function silentAfterSeconds(reconcileCron: string): number | undefined {
  const [next, after] = cron.createTask(reconcileCron, () => {}).getNextRuns(2)
  if (!next || !after) return undefined
  const seconds = ((after.getTime() - next.getTime()) / 1000) * silentAfterTicks
  return seconds > maxSilentSeconds ? undefined : Math.max(minSilentSeconds, seconds)
}
