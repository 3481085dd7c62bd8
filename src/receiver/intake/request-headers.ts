import type { IncomingMessage } from 'node:http'

/** Every value that was sent of one header; node's own `headersDistinct` makes lists of all of them. `name` is in lower case. */
export function valuesOf({ rawHeaders }: IncomingMessage, name: string): string[] {
  const values: string[] = []
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const given = rawHeaders[at] ?? ''
    if (given.length === name.length && given.toLowerCase() === name) values.push(rawHeaders[at + 1] ?? '')
  }
  return values
}

const credentialHeaders = new Set(['authorization', 'x-api-key', 'cookie', 'proxy-authorization'])

/** The headers as they are kept with a delivery: without credentials and signatures. */
export function keptHeaders(req: IncomingMessage, signatureHeaders: readonly string[]): Record<string, string> {
  const kept: Record<string, string> = {}
  const { headers } = req
  const isSecret = (name: string) => credentialHeaders.has(name) || signatureHeaders.includes(name)
  for (const name of Object.keys(headers)) {
    const value = headers[name]
    if (value !== undefined) kept[name] = isSecret(name) ? redacted : String(value)
  }
  return kept
}

/** The same with the signature, which is needed to verify it again: for the quarantine, the only place that keeps one. */
export function headersToVerify(req: IncomingMessage, signatureHeaders: readonly string[]): Record<string, string> {
  const headers = keptHeaders(req, signatureHeaders)
  for (const name of signatureHeaders) {
    const signatures = valuesOf(req, name)
    if (signatures.length === 1) headers[name] = signatures[0] ?? ''
  }
  return headers
}

/** In place of a credential or a signature. */
export const redacted = '[redacted]'

/** At most so much of a text, without holding on to the rest: a part of a string keeps the whole of it in memory. */
export function startOf(text: string, characters: number): string {
  return text.length <= characters ? text : Buffer.from(text.slice(0, characters)).toString()
}
