import ipaddr from 'ipaddr.js'

/** What one sender is known by: an IPv4 address, or the /64 of an IPv6 one, of which anybody has all addresses. */
export function sourceOf(remote: string | undefined): string {
  if (remote === undefined || !ipaddr.isValid(remote)) return 'unknown'
  const address = ipaddr.process(remote)
  if (address instanceof ipaddr.IPv4) return address.toString()
  return `${address.parts
    .slice(0, 4)
    .map((part) => part.toString(16))
    .join(':')}::/64`
}

/** The network that a source is in, of which one can have many: an IPv4 /24, or the /48 of an IPv6 one. */
export function networkOf(source: string): string {
  return networkPattern.exec(source)?.[0] ?? source
}

const networkPattern = /^(?:[0-9]+\.){3}|^(?:[0-9a-f]+:){3}/
