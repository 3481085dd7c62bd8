import net from 'node:net'
import ipaddr from 'ipaddr.js'

/**
 * The addresses of clouds' metadata services that the ranges below do not cover
 * by themselves, or might one day not (decisions, webhook URL).
 */
const metadataServices = new Set(['169.254.169.254', 'fd00:ec2::254', '168.63.129.16', '100.100.100.200'])

const globalUnicastV6 = ipaddr.IPv6.parseCIDR('2000::/3')

/**
 * Whether an address is a public one. IPv6 forms that carry an IPv4 address
 * inside (mapped, NAT64, 6to4, Teredo) are refused whatever they carry: nobody's
 * public receiver needs them, and they are a way round each IPv4 rule.
 */
export function isPublicAddress(address: string): boolean {
  // ipaddr.js would also read 1.2.3 and 2130706433, which is not for it to guess.
  if (net.isIP(address) === 0) return false
  const parsed = ipaddr.parse(address)
  if (metadataServices.has(parsed.toString()) || parsed.range() !== 'unicast') return false
  return parsed.kind() === 'ipv4' || (parsed instanceof ipaddr.IPv6 && parsed.match(globalUnicastV6))
}

const localNames = ['localhost', 'localdomain', 'local', 'internal', 'intranet', 'lan', 'home.arpa']

/** Names that mean this machine or this network wherever they are looked up. */
export function isLocalName(hostname: string): boolean {
  const name = hostname.toLowerCase().replace(/\.+$/, '')
  return localNames.some((local) => name === local || name.endsWith(`.${local}`))
}

/** The address that a URL's hostname is, without an IPv6 literal's brackets; undefined for a name. */
export function literalAddress(hostname: string): string | undefined {
  const bare = hostname.replace(/^\[|\]$/g, '').replace(/\.+$/, '')
  return net.isIP(bare) === 0 ? undefined : bare
}
