import net from 'node:net'
import ipaddr from 'ipaddr.js'

/** Returns an IPv4 address, or the /64 of an IPv6 address, whose owner has all its addresses. */
export function senderOf(remote: string | undefined): string {
  // A listener on IPv6 shows IPv4 addresses in this form. Most addresses are IPv4, and ipaddr.js takes longer.
  const unmapped = remote?.replace(/^::ffff:/, '')
  if (unmapped !== undefined && net.isIPv4(unmapped)) return unmapped
  if (remote === undefined || !ipaddr.isValid(remote)) return 'unknown'
  const address = ipaddr.process(remote)
  if (address instanceof ipaddr.IPv4) return address.toString()
  const network = address.parts.slice(0, 4).map((part) => part.toString(16))
  return `${network.join(':')}::/64`
}
