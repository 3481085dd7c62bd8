import type { Logger } from './logger.ts'

const burst = 200

/** True if a line may be written now. */
export type LineBudget = () => boolean

/**
 * Limits log lines that any client can cause, so that a flood does not fill the disk. Reports how many lines were
 * dropped.
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
    tokens = Math.min(burst, tokens + ((now - refilledAt) / 1000) * 20)
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
