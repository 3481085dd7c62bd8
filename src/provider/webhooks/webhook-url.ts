import { HttpError } from '../../runtime/http/http.ts'
import { isLocalName, isPublicAddress, literalAddress } from '../../runtime/outward/public-address.ts'
import type { Resolve } from '../../runtime/outward/resolver.ts'

const maxLength = 2048
const resolveTimeoutMs = 1000

export type WebhookUrlRules = {
  /** Origins that may be plain http and private: for local use only. */
  allow: readonly string[]
  resolve: Resolve
}

/**
 * Checks a webhook_url at submit (spec, URL rules; CONTRACT, webhook URL) and
 * answers it in its canonical form. The address is checked again whenever it is
 * dialled; here it is refused as early as can be known.
 */
export async function checkWebhookUrl(text: string, { allow, resolve }: WebhookUrlRules): Promise<string> {
  const url = parseWebhookUrl(text)
  if (isAllowed(url, allow)) return url.href
  const problem = staticProblem(url)
  if (problem !== undefined) throw refused(problem)
  const addresses = literalAddress(url.hostname) === undefined ? await resolve(url.hostname, resolveTimeoutMs) : []
  if (!addresses.every(isPublicAddress)) throw refused('must not point to an internal or private address')
  return url.href
}

/** Exempt from the https and address rules by PROVIDER_WEBHOOK_ALLOW. */
export function isAllowed(url: URL, allow: readonly string[]): boolean {
  return allow.some((origin) => URL.canParse(origin) && new URL(origin).origin === url.origin)
}

/** What is wrong with a URL as it is written. WHATWG parsing has already undone every disguise of an IPv4 address. */
export function staticProblem(url: URL): string | undefined {
  if (url.protocol !== 'https:') return 'must be an https URL'
  const port = Number(url.port || 443)
  if (port !== 443 && port < 1024) return 'must have port 443 or a port from 1024 on'
  const literal = literalAddress(url.hostname)
  const internal = literal === undefined ? isLocalName(url.hostname) : !isPublicAddress(literal)
  return internal ? 'must not point to an internal or private address' : undefined
}

/** White space, control and format characters: the parser would drop or move them without a word. */
const neverInUrl = /[\s\p{Z}\p{Cc}\p{Cf}]/u

function parseWebhookUrl(text: string): URL {
  if (text.length > maxLength) throw refused(`must have at most ${maxLength} characters`)
  if (neverInUrl.test(text)) throw refused('must not contain white space or control characters')
  if (!text.isWellFormed() || !URL.canParse(text)) throw refused('must be an absolute URL')
  const url = new URL(text)
  if (url.protocol !== 'https:' && url.protocol !== 'http:') throw refused('must be an https URL')
  if (url.username !== '' || url.password !== '') throw refused('must not contain credentials')
  return url
}

function refused(what: string): HttpError {
  return new HttpError(400, 'webhook_url_invalid', `webhook_url ${what}`)
}
