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

/** The limit of a webhook URL in docs/specification-decisions.md. */
const maxUrlCharacters = 2048
/** About twice the longest name in DNS. Punycode can make a name three times as long as its input. */
const maxHostCharacters = 512
/** White space, control and format characters, which the parser would silently drop or encode. */
const neverInUrl = /[\s\p{Z}\p{Cc}\p{Cf}]/u

/** The parser would add missing slashes, and drop a third one. */
const webAddress = /^https?:\/\/[^/\\]/i

/** Parses a URL that a user gave for posts. Returns the problem in words if it is invalid. */
export function parseGivenUrl(text: string): URL | string {
  if (text.length > maxUrlCharacters) return `must have at most ${maxUrlCharacters} characters`
  if (neverInUrl.test(text)) return 'must not contain white space or control characters'
  if (!text.isWellFormed() || !URL.canParse(text)) return 'must be an absolute URL'
  const url = new URL(text)
  if (url.protocol !== 'https:' && url.protocol !== 'http:') return 'must be an https URL'
  if (!webAddress.test(text)) return 'must be an absolute URL'
  if (url.host.length > maxHostCharacters) return `must have a host name of at most ${maxHostCharacters} characters`
  if (url.username !== '' || url.password !== '') return 'must not contain credentials'
  return url
}

/** Returns why a URL must not be called, as far as its text shows, after the parser has normalised it. */
export function publicUrlProblem(url: URL): string | undefined {
  if (url.protocol !== 'https:') return 'must be an https URL'
  const port = Number(url.port || 443)
  if (port !== 443 && port < 1024) return 'must have port 443 or a port from 1024 on'
  const literal = literalAddress(url.hostname)
  const internal = literal === undefined ? isLocalName(url.hostname) : !isPublicAddress(literal)
  return internal ? 'must not point to an internal or private address' : undefined
}

/** How to connect to a URL: only at public addresses, at any address, or not at all with a reason. */
export type Dialling = { kind: 'public' } | { kind: 'named' } | { kind: 'refused'; why: string }

/** Returns how to connect to a URL. The origins in `allow` are exempt from the https and address rules. */
export function diallingOf(url: URL, allow: readonly string[]): Dialling {
  const isAllowed = allow.some((origin) => URL.canParse(origin) && new URL(origin).origin === url.origin)
  if (isAllowed) return { kind: 'named' }
  const why = publicUrlProblem(url)
  return why === undefined ? { kind: 'public' } : { kind: 'refused', why }
}
