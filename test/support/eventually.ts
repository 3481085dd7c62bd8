import { setTimeout as delay } from 'node:timers/promises'

/** Checks cost what the condition needs to come true: a pause is a twentieth of the wait so far, within these limits. */
const [shortestPauseMs, longestPauseMs] = [10, 100]

/** Waits until `check` answers something other than undefined or false; the last failure tells why it never did. */
export async function eventually<T>(
  check: () => Promise<T | undefined | false> | T | undefined | false,
  withinMs = 60_000,
): Promise<T> {
  const started = Date.now()
  const deadline = started + withinMs
  let lastError: unknown
  while (Date.now() < deadline) {
    try {
      const value = await check()
      if (value !== undefined && value !== false) return value
    } catch (error) {
      lastError = error
    }
    await delay(Math.min(longestPauseMs, Math.max(shortestPauseMs, (Date.now() - started) / 20)))
  }
  throw new Error(`the condition did not come true within ${withinMs} ms`, { cause: lastError })
}
