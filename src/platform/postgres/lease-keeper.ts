import type { Logger } from '../logger.ts'

/** A few renewals may fail before a lease of `leaseSeconds` ends. */
const renewalMs = 1000
/** When a process dies, another takes over what it held after at most so long. */
export const leaseSeconds = 10

/** A claim that is kept until it is let go. */
export type Kept = {
  /** Aborts when the lease has ended or was lost: another may have claimed the row. */
  lost: AbortSignal
  /** How long the lease lasts if it is not renewed any more; negative when it was lost. */
  leftMs: () => number
  /** Ends the renewals. Resolves when none is under way that could still move the row's time. */
  letGo: () => Promise<void>
}

export type LeaseKeeper<Claim> = {
  /** Renews a claim until it is let go. `claimedAtMs`: the time (performance.now()) before its claim was asked for. */
  keep: (claim: Claim, claimedAtMs: number) => Kept
}

type KeeperDeps<Claim> = {
  /** Gives these claims another lease, and answers those that were still this process's. */
  renew: (held: readonly Claim[]) => Promise<readonly Claim[]>
  leaseMs?: number
  logger: Pick<Logger, 'warn'>
}

type Entry = { endsAtMs: number; lost: AbortController }

/** Renews the leases of what this process has claimed of one table, together, for as long as it works on it. */
export function createLeaseKeeper<Claim>({
  renew,
  leaseMs = leaseSeconds * 1000,
  logger,
}: KeeperDeps<Claim>): LeaseKeeper<Claim> {
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
      .catch((error: unknown) => logger.warn({ err: error }, 'leases were not renewed, the next second tries again'))
      .finally(() => {
        renewing = undefined
      })
  }
  const stop = () => {
    clearInterval(timer)
    timer = undefined
  }
  return {
    keep: (claim, claimedAtMs) => {
      const entry: Entry = { endsAtMs: claimedAtMs + leaseMs, lost: new AbortController() }
      entries.set(claim, entry)
      timer ??= setInterval(tick, renewalMs).unref()
      return {
        lost: entry.lost.signal,
        leftMs: () => entry.endsAtMs - performance.now(),
        letGo: async () => {
          if (entries.get(claim) === entry) entries.delete(claim)
          if (entries.size === 0) stop()
          await renewing
        },
      }
    },
  }
}
