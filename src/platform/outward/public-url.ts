import type { Dialling } from './agents.ts'
import { isLocalName, isPublicAddress, literalAddress } from './public-address.ts'

/** The limit of a webhook URL in docs/specification-decisions.md. */
const maxUrlCharacters = 2048
/** About twice the longest name in DNS. Punycode can make a name three times as long as its input. */
const maxHostCharacters = 512
/** White space, control and format characters, which the parser would silently drop or encode. */
const neverInUrl = /[\s\p{Z}\p{Cc}\p{Cf}]/u

/** Parses a URL that a user gave for posts. Returns the problem in words if it is invalid. */
export function parseGivenUrl(text: string): URL | string {
  if (text.length > maxUrlCharacters) return `must have at most ${maxUrlCharacters} characters`
  if (neverInUrl.test(text)) return 'must not contain white space or control characters'
  if (!text.isWellFormed() || !URL.canParse(text)) return 'must be an absolute URL'
  const url = new URL(text)
  if (url.protocol !== 'https:' && url.protocol !== 'http:') return 'must be an https URL'
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

/** Returns how to connect to a URL. The origins in `allow` are exempt from the https and address rules. */
export function diallingOf(url: URL, allow: readonly string[]): Dialling {
  const isAllowed = allow.some((origin) => URL.canParse(origin) && new URL(origin).origin === url.origin)
  if (isAllowed) return { kind: 'named' }
  const why = publicUrlProblem(url)
  return why === undefined ? { kind: 'public' } : { kind: 'refused', why }
}
