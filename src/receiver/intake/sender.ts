import ipaddr from 'ipaddr.js'

/**
 * Returns the identity of a sender: an IPv4 address, or the /64 of an IPv6 address, whose owner has all its addresses.
 */
export function senderOf(remote: string | undefined): string {
  if (remote === undefined || !ipaddr.isValid(remote)) return 'unknown'
  const address = ipaddr.process(remote)
  if (address instanceof ipaddr.IPv4) return address.toString()
  return `${address.parts
    .slice(0, 4)
    .map((part) => part.toString(16))
    .join(':')}::/64`
}

/** Returns the network of a sender, in which one owner may have many: an IPv4 /24, or an IPv6 /48. */
export function networkOf(sender: string): string {
  return networkPattern.exec(sender)?.[0] ?? sender
}

const networkPattern = /^(?:[0-9]+\.){3}|^(?:[0-9a-f]+:){3}/
