import type { Logger } from './logger.ts'

/** True if a line may be written now. */
export type LineBudget = () => boolean

/** Creates a token bucket: `burst` at once, then `perSecond`. The returned function takes a token, if there is one. */
export function createTokens(burst: number, perSecond: number): (nowMs: number) => boolean {
  let tokens = burst
  let refilledAt = 0

  return (nowMs) => {
    tokens = Math.min(burst, tokens + (Math.max(0, nowMs - refilledAt) / 1000) * perSecond)
    refilledAt = nowMs
    if (tokens < 1) return false
    tokens -= 1
    return true
  }
}

type LimitedLines = { logger: Logger; what: string; reportAfterMs?: number }

/**
 * Limits log lines that any client can cause, so that a flood does not fill the disk. Reports how many lines were
 * dropped.
 */
export function createLineBudget({ logger, what, reportAfterMs = 10_000 }: LimitedLines): LineBudget {
  const mayWrite = createTokens(200, 20)
  let leftOut = 0

  const report = () => {
    logger.info({ left_out: leftOut }, `too many ${what}: lines were left out`)
    leftOut = 0
  }
  return () => {
    if (mayWrite(performance.now())) return true
    leftOut += 1
    if (leftOut === 1) setTimeout(report, reportAfterMs).unref()
    return false
  }
}
