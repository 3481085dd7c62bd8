import { once } from 'node:events'
import type { Writable } from 'node:stream'

/** A stream without data sends a sign of life this often, so that proxies keep the connection. */
export const heartbeatMs = 15_000

/**
 * Writes, and waits until the client has accepted the data, so that memory holds one piece per slow reader. Rejects
 * when `signal` aborts, or when the client accepts nothing for `stallMs`.
 */
export async function writeTo(
  reader: Writable,
  text: string,
  // A client that accepts no data for this long has gone, or takes the place of another.
  { signal, stallMs = 30_000 }: { signal: AbortSignal; stallMs?: number },
): Promise<void> {
  if (!reader.write(text))
    await once(reader, 'drain', { signal: AbortSignal.any([signal, AbortSignal.timeout(stallMs)]) })
}
