import type { Logger } from '../logger.ts'

/**
 * The usual lease. Work of a process that died waits this long, so it is short. It is longer than a process usually
 * pauses, for example to collect garbage.
 */
export const leaseSeconds = 10

type KeeperDeps<Claim> = {
  /** Renews these claims and returns those that this process still holds. */
  renew: (held: readonly Claim[]) => Promise<readonly Claim[]>
  leaseMs?: number
  logger: Pick<Logger, 'warn'>
}

type Entry = { endsAtMs: number; lost: AbortController }

/** Renews all leases that this process holds in one table, with one statement per second. */
export function createLeaseKeeper<Claim>({ renew, leaseMs = leaseSeconds * 1000, logger }: KeeperDeps<Claim>) {
  const entries = new Map<Claim, Entry>()
  let timer: NodeJS.Timeout | undefined
  let renewing: Promise<void> | undefined

  const lose = (claim: Claim, entry: Entry) => {
    entries.delete(claim)
    entry.endsAtMs = -Infinity
    entry.lost.abort()
  }
  const renewAll = async () => {
    const askedAtMs = performance.now()
    const asked = [...entries]
    const kept = new Set(await renew(asked.map(([claim]) => claim)))
    for (const [claim, entry] of asked) {
      if (kept.has(claim)) entry.endsAtMs = askedAtMs + leaseMs
      else if (entries.get(claim) === entry) lose(claim, entry)
    }
  }
  const tick = () => {
    for (const [claim, entry] of entries) if (entry.endsAtMs <= performance.now()) lose(claim, entry)
    if (entries.size === 0) return stop()
    renewing ??= renewAll()
      .catch((error: unknown) => logger.warn({ err: error }, 'leases were not renewed, will retry in a second'))
      .finally(() => {
        renewing = undefined
      })
  }
  const stop = () => {
    clearInterval(timer)
    timer = undefined
  }
  return {
    /** Renews a claim until it is released. `claimedAtMs`: performance.now() before the claim was requested. */
    keep: (claim: Claim, claimedAtMs: number) => {
      const entry: Entry = { endsAtMs: claimedAtMs + leaseMs, lost: new AbortController() }
      entries.set(claim, entry)
      // Several renewals may fail before a lease of `leaseSeconds` ends.
      timer ??= setInterval(tick, 1000).unref()
      return {
        /** Aborts when the lease expires without a renewal, or when another process holds the row. */
        lost: entry.lost.signal,
        /** Time until the lease ends without further renewals. Negative after it was lost. */
        leftMs: () => entry.endsAtMs - performance.now(),
        /** Stops the renewals. Resolves when no renewal is running that could still change the row. */
        letGo: async () => {
          if (entries.get(claim) === entry) entries.delete(claim)
          if (entries.size === 0) stop()
          await renewing
        },
      }
    },
  }
}
