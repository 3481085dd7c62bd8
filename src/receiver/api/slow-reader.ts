import { once } from 'node:events'
import type { Writable } from 'node:stream'

/** Who takes nothing for so long has gone, or holds a place that others need. */
const maxStallMs = 30_000

/**
 * Writes and waits until it has been taken, so that never more than one piece
 * waits in memory for a slow reader. Rejects where `signal` aborts, or the reader
 * takes nothing for `stallMs`.
 */
export async function writeTo(
  reader: Writable,
  text: string,
  { signal, stallMs = maxStallMs }: { signal: AbortSignal; stallMs?: number },
): Promise<void> {
  if (!reader.write(text))
    await once(reader, 'drain', { signal: AbortSignal.any([signal, AbortSignal.timeout(stallMs)]) })
}
