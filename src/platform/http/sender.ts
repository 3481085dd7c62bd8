import net from 'node:net'
import ipaddr from 'ipaddr.js'

/**
 * Returns the address without its port, which some balancers append to an IPv4 address, and without the prefix that a
 * listener on IPv6 adds to one.
 */
export function addressOf(remote: string): string {
  const [, address = remote] = /^(?:::ffff:)?(\d+\.\d+\.\d+\.\d+)(?::\d+)?$/.exec(remote) ?? []
  return address
}

/** Returns an IPv4 address, or the /64 of an IPv6 address, whose owner has all its addresses. */
export function senderOf(remote: string | undefined): string {
  const plain = remote && addressOf(remote)
  // Most addresses are IPv4, and ipaddr.js takes longer.
  if (plain !== undefined && net.isIPv4(plain)) return plain
  if (remote === undefined || !ipaddr.isValid(remote)) return 'unknown'
  const address = ipaddr.process(remote)
  if (address instanceof ipaddr.IPv4) return address.toString()
  const network = address.parts.slice(0, 4).map((part) => part.toString(16))
  return `${network.join(':')}::/64`
}
