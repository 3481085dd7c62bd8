import type { AttemptListing } from '../webhooks/delivery-history.ts'

/** Network errors on the way to a receiver, with their meaning. */
const troubles: readonly [RegExp, string][] = [
  [/^not sent/, ''],
  [/^no complete answer within/, ''],
  [/ECONNREFUSED/, 'nothing listens at this address and port'],
  [/ENOTFOUND|does not resolve/, 'its name does not resolve'],
  [/EAI_AGAIN|resolv/i, 'its name could not be looked up'],
  [/not public/, 'its name resolves to a private address, which is never called'],
  [/ETIMEDOUT|Connect Timeout/, 'no connection in time'],
  [/ECONNRESET|other side closed|socket hang up/, 'it closed the connection before its answer was complete'],
  [/EHOSTUNREACH|ENETUNREACH/, 'no route leads to its address'],
  [/certificate|altnames|self.signed/i, 'its TLS certificate is not valid or not trusted'],
  [/EPROTO|SSL|TLS/, 'TLS failed: is it https at this port?'],
]

/** Statuses whose cause is usually the same. */
const refusals: Record<number, string> = {
  400: 'the receiver did not accept the webhook',
  401: 'the receiver did not accept the signature: check its signing secret and its clock',
  403: 'the receiver refused the webhook: check its signing secret',
  404: 'there is nothing at this path',
  405: 'this path does not accept POST',
  408: 'the receiver waited too long for the webhook',
  413: 'the webhook is too large for the receiver',
  415: 'the receiver does not accept JSON',
  429: 'the receiver was sent too many requests',
}

type Attempt = Pick<AttemptListing, 'ok' | 'http_status' | 'detail'>

/** The outcome of one attempt in words. */
export function outcomeOf({ ok, http_status: status, detail }: Attempt): string {
  if (ok) return `Answered ${status}.`
  if (status === null || (status >= 200 && status < 300)) {
    const words = troubles.find(([pattern]) => pattern.test(detail))?.[1] ?? ''
    const what = status === null ? (words === '' ? '' : 'Not delivered: ') : `It began to answer ${status}, but `
    return words === '' ? sentence(`${what}${detail}`) : sentence(`${what}${words} (${detail})`)
  }
  return sentence(`Answered ${status}: ${meaningOfStatus(status)}`)
}

function meaningOfStatus(status: number): string {
  if (status >= 300 && status < 400) return 'a redirect, which is not followed'
  return refusals[status] ?? (status >= 500 ? 'the receiver failed' : 'only 2xx counts as delivered')
}

function sentence(text: string): string {
  const begun = text.slice(0, 1).toUpperCase() + text.slice(1)
  return /[.?!)]$/.test(begun) ? begun : `${begun}.`
}
