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

const credentialHeaders = new Set([
  'x-service-signature',
  'authorization',
  'x-api-key',
  'cookie',
  'proxy-authorization',
])

/** The headers as they are kept with a delivery: without credentials. */
export function keptHeaders(req: IncomingMessage): Record<string, string> {
  const kept: Record<string, string> = {}
  const { headers } = req
  for (const name of Object.keys(headers)) {
    const value = headers[name]
    if (value !== undefined) kept[name] = credentialHeaders.has(name) ? '[redacted]' : String(value)
  }
  return kept
}

/** The same with the signature, which is needed to verify it again: for the quarantine, the only place that keeps one. */
export function headersToVerify(req: IncomingMessage): Record<string, string> {
  const headers = keptHeaders(req)
  const signatures = valuesOf(req, 'x-service-signature')
  if (signatures.length === 1) headers['x-service-signature'] = signatures[0] ?? ''
  return headers
}

/** At most so much of a text, without holding on to the rest: a part of a string keeps the whole of it in memory. */
export function startOf(text: string, characters: number): string {
  return text.length <= characters ? text : Buffer.from(text.slice(0, characters)).toString()
}
