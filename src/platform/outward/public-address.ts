import net from 'node:net'
import ipaddr from 'ipaddr.js'

/** Addresses of cloud metadata services. The ranges of ipaddr.js do not cover all of them. */
const metadataServices = new Set(['169.254.169.254', 'fd00:ec2::254', '168.63.129.16', '100.100.100.200'])

const globalUnicastV6 = ipaddr.IPv6.parseCIDR('2000::/3')

/** True if an address is public. IPv6 forms of IPv4 addresses (mapped, NAT64, 6to4, Teredo) never are. */
export function isPublicAddress(address: string): boolean {
  // ipaddr.js would also accept 1.2.3 and 2130706433.
  if (net.isIP(address) === 0) return false
  const parsed = ipaddr.parse(address)
  if (metadataServices.has(parsed.toString()) || parsed.range() !== 'unicast') return false
  return parsed.kind() === 'ipv4' || (parsed instanceof ipaddr.IPv6 && parsed.match(globalUnicastV6))
}

const localNames = ['localhost', 'localdomain', 'local', 'internal', 'intranet', 'lan', 'home.arpa']

/** True for names that always mean this machine or this network. */
export function isLocalName(hostname: string): boolean {
  const name = hostname.toLowerCase().replace(/\.+$/, '')
  return localNames.some((local) => name === local || name.endsWith(`.${local}`))
}

/** Returns the address in a URL's hostname, without the brackets of IPv6. Returns undefined for a name. */
export function literalAddress(hostname: string): string | undefined {
  const bare = hostname.replace(/^\[|\]$/g, '').replace(/\.+$/, '')
  return net.isIP(bare) === 0 ? undefined : bare
}
