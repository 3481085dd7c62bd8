import { HttpError } from '../../runtime/http/http.ts'
import type { Dialling } from '../../runtime/outward/poster.ts'
import { isPublicAddress, literalAddress } from '../../runtime/outward/public-address.ts'
import { parseGivenUrl, publicUrlProblem } from '../../runtime/outward/public-url.ts'
import type { Resolve } from '../../runtime/outward/resolver.ts'

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
  const url = parseGivenUrl(text)
  if (typeof url === 'string') throw refused(url)
  const dialling = judgeWebhookUrl(url, allow)
  if (dialling.kind === 'named') return url.href
  if (dialling.kind === 'refused') throw refused(dialling.why)
  const addresses = literalAddress(url.hostname) === undefined ? await resolve(url.hostname, resolveTimeoutMs) : []
  if (!addresses.every(isPublicAddress)) throw refused('must not point to an internal or private address')
  return url.href
}

/** Exempt from the https and address rules by PROVIDER_WEBHOOK_ALLOW. */
function isAllowed(url: URL, allow: readonly string[]): boolean {
  return allow.some((origin) => URL.canParse(origin) && new URL(origin).origin === url.origin)
}

/** How a webhook's URL is dialled. */
export function judgeWebhookUrl(url: URL, allow: readonly string[]): Dialling {
  if (isAllowed(url, allow)) return { kind: 'named' }
  const why = publicUrlProblem(url)
  return why === undefined ? { kind: 'public' } : { kind: 'refused', why }
}

function refused(what: string): HttpError {
  return new HttpError(400, 'webhook_url_invalid', `webhook_url ${what}`)
}
