import { senderOf } from '../http/sender.ts'

/** The window in which wrong tokens are counted, and the time for which they are limited afterwards. */
const windowMs = 60_000
/** More than a person mistypes in a minute; wrong tokens beyond it are answered 429. */
const triesPerAddress = 10
/** The limit over all addresses. Beyond it, an address is limited after one wrong token. */
const triesOfAll = 100

/** An address (for IPv6, its /64) whose wrong tokens are answered 429 until `until`, and its last counted call. */
export type Limited = { address: string; until: Date; asked?: string | undefined }

export type GuessLimit = ReturnType<typeof createGuessLimit>

type Failures = { times: number[]; until: number; asked: string | undefined }

/**
 * Counts wrong tokens by address and over all addresses. Right tokens are never limited, so that a caller with an old
 * token does not lock out others behind the same address.
 */
export function createGuessLimit(clock: () => Date) {
  const failures = new Map<string, Failures>()
  let all: number[] = []

  const recent = (times: readonly number[]) => times.filter((at) => Math.abs(clock().getTime() - at) < windowMs)
  const dateOf = ({ until }: Failures) => (until > clock().getTime() ? new Date(until) : undefined)
  return {
    /** Returns the end of the limit of this address; undefined if it is not limited. */
    limitedUntil: (address: string | undefined): Date | undefined => {
      const known = failures.get(senderOf(address))
      return known && dateOf(known)
    },
    /**
     * Counts a wrong token. `asked`, the call and its program, is kept to show which caller behind the address it was.
     * Returns the end of a limit that begins.
     */
    failed: (address: string | undefined, asked?: string): Date | undefined => {
      const [name, now] = [senderOf(address), clock().getTime()]
      const times = [...recent(failures.get(name)?.times ?? []), now].slice(-triesPerAddress)
      all = [...recent(all), now].slice(-triesOfAll)
      const isLimited = times.length >= (all.length >= triesOfAll ? 1 : triesPerAddress)
      const noted = { times, until: isLimited ? now + windowMs : 0, asked }
      failures.delete(name)
      failures.set(name, noted)
      for (const oldest of failures.keys()) {
        // Bounds memory. The address whose last wrong token is oldest is forgotten first.
        if (failures.size <= 10_000) break
        failures.delete(oldest)
      }
      return dateOf(noted)
    },
    limited: (): Limited[] =>
      [...failures].flatMap(([address, known]) => {
        const until = dateOf(known)
        return until ? [{ address, until, asked: known.asked }] : []
      }),
  }
}
