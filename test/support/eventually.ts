import { setTimeout as delay } from 'node:timers/promises'

/** Longer pause for slow conditions, because frequent checks would slow them down. */
const soonMs = 200

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
    await delay(Date.now() - started < soonMs ? 10 : 25)
  }
  throw new Error(`the condition did not come true within ${withinMs} ms`, { cause: lastError })
}
