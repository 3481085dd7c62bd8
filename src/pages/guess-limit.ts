import ipaddr from 'ipaddr.js'

const windowMs = 60_000
/** Wrong tokens of one address in any minute; more are not even compared. */
const maxOfAddress = 10
/** Of all addresses together: beyond it, an address has one try a minute. */
const maxOfAll = 100
const maxAddresses = 10_000

export type GuessLimit = {
  /** Seconds until this address may try again; undefined where it may now. */
  waitOf: (address: string | undefined) => number | undefined
  failed: (address: string | undefined) => void
}

/**
 * Bounds how fast a token can be guessed, from one address and from all. An
 * address that never failed may always try: nobody is locked out by the guesses
 * of another address.
 */
export function createGuessLimit(clock: () => Date): GuessLimit {
  const failures = new Map<string, number[]>()
  let all: number[] = []

  const recent = (times: readonly number[]) => times.filter((at) => Math.abs(clock().getTime() - at) < windowMs)
  return {
    waitOf: (address) => {
      const times = recent(failures.get(nameOf(address)) ?? [])
      const allowed = recent(all).length >= maxOfAll ? 1 : maxOfAddress
      const free = times.at(-allowed)
      return free === undefined ? undefined : Math.max(1, Math.ceil((free + windowMs - clock().getTime()) / 1000))
    },
    failed: (address) => {
      const [name, now] = [nameOf(address), clock().getTime()]
      const times = recent(failures.get(name) ?? [])
      failures.delete(name)
      failures.set(name, [...times, now].slice(-maxOfAddress))
      all = [...all, now].slice(-maxOfAll)
      for (const oldest of failures.keys()) {
        if (failures.size <= maxAddresses) break
        failures.delete(oldest)
      }
    },
  }
}

/** Whoever has an IPv6 address has the whole /64 of it. */
function nameOf(address: string | undefined): string {
  if (address === undefined || !ipaddr.isValid(address)) return 'unknown'
  const parsed = ipaddr.process(address)
  return parsed.kind() === 'ipv6' ? parsed.toByteArray().slice(0, 8).join('.') : parsed.toString()
}
