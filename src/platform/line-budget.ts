import type { Logger } from './logger.ts'

const burst = 200
const perSecond = 20

/** Whether a line may be written now. */
export type LineBudget = () => boolean

/**
 * For lines that a stranger can cause: so many, and then one that says how many
 * were left out, so that nobody fills the disk of the log.
 */
export function createLineBudget({
  logger,
  what,
  reportAfterMs = 10_000,
}: {
  logger: Logger
  what: string
  reportAfterMs?: number
}): LineBudget {
  let tokens = burst
  let refilledAt = performance.now()
  let leftOut = 0

  const report = () => {
    logger.info({ left_out: leftOut }, `too many ${what}: lines were left out`)
    leftOut = 0
  }
  return () => {
    const now = performance.now()
    tokens = Math.min(burst, tokens + ((now - refilledAt) / 1000) * perSecond)
    refilledAt = now
    if (tokens >= 1) {
      tokens -= 1
      return true
    }
    leftOut += 1
    if (leftOut === 1) setTimeout(report, reportAfterMs).unref()
    return false
  }
}
