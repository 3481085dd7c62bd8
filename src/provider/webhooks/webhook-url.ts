import { HttpError } from '../../platform/http/http.ts'
import { diallingOf, isPublicAddress, literalAddress, parseGivenUrl } from '../../platform/outward/public-url.ts'
import type { Resolve } from '../../platform/outward/resolver.ts'

/** `allow`: the origins of PROVIDER_WEBHOOK_ALLOW may be plain http and private, for local use only. */
type WebhookUrlRules = { allow: readonly string[]; resolve: Resolve }

/**
 * Checks a webhook_url at submit (spec, URL rules; decisions, webhook URL) and returns its canonical form. The poster
 * checks the address again at every attempt.
 */
export async function checkWebhookUrl(text: string, { allow, resolve }: WebhookUrlRules): Promise<string> {
  const url = parseGivenUrl(text)
  if (typeof url === 'string') throw refused(url)
  const dialling = diallingOf(url, allow)
  if (dialling.kind === 'named') return url.href
  if (dialling.kind === 'refused') throw refused(dialling.why)
  const addresses = literalAddress(url.hostname) === undefined ? await resolve(url.hostname, 1000) : []
  if (!addresses.every(isPublicAddress)) throw refused('must not point to an internal or private address')
  return url.href
}

function refused(what: string): HttpError {
  return new HttpError(400, 'webhook_url_invalid', `webhook_url ${what}`)
}
