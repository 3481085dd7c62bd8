import cron from 'node-cron'

/** Returns after how long without a run the reconciler counts as silent; undefined if it runs too rarely to decide. */
export function silentAfterSeconds(reconcileCron: string): number | undefined {
  const [next, after] = cron.createTask(reconcileCron, () => {}).getNextRuns(2)
  if (!next || !after) return undefined
  // A run may take long, and a tick may be missed.
  const seconds = ((after.getTime() - next.getTime()) / 1000) * 3
  return seconds > 86_400 ? undefined : Math.max(300, seconds)
}
