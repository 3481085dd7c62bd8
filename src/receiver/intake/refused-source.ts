import ipaddr from 'ipaddr.js'

/** Whom a sender can be told from: an IPv4 address, or the /64 of an IPv6 one, of which anybody has all addresses. */
export function sourceOf(remote: string | undefined): string {
  if (remote === undefined || !ipaddr.isValid(remote)) return 'unknown'
  const address = ipaddr.process(remote)
  if (address instanceof ipaddr.IPv4) return address.toString()
  return `${address.parts.slice(0, 4).map((part) => part.toString(16)).join(':')}::/64`
}
