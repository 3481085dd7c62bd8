import type { IncomingMessage } from 'node:http'

/**
 * Returns every value of one header, by its lower-case name. Node's `headersDistinct` would build lists of all headers.
 */
export function valuesOf({ rawHeaders }: IncomingMessage, name: string): string[] {
  const values: string[] = []
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const given = rawHeaders[at] ?? ''
    if (given.length === name.length && given.toLowerCase() === name) values.push(rawHeaders[at + 1] ?? '')
  }
  return values
}

const credentialHeaders = new Set(['authorization', 'x-api-key', 'cookie', 'proxy-authorization'])

/** Returns the headers to store with a delivery. Credentials and signatures are replaced by `[redacted]`. */
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

/** Returns the headers for the quarantine, with the signature, to verify again. No other table keeps it. */
export function headersToVerify(req: IncomingMessage, signatureHeaders: readonly string[]): Record<string, string> {
  const headers = keptHeaders(req, signatureHeaders)
  for (const name of signatureHeaders) {
    const signatures = valuesOf(req, name)
    if (signatures.length === 1) headers[name] = signatures[0] ?? ''
  }
  return headers
}

/** Stands in for a credential or a signature. */
export const redacted = '[redacted]'

/** Returns the beginning of a text as a copy: a slice of a string would keep the whole of it in memory. */
export function startOf(text: string, characters: number): string {
  return text.length <= characters ? text : Buffer.from(text.slice(0, characters)).toString()
}
