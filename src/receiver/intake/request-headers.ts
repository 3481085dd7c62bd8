import type { IncomingMessage } from 'node:http'
import type { Request } from 'express'
import { storedName, type Source } from '../domain/source.ts'
import { pathHeader, pathIn, webhookPath } from '../domain/webhook-path.ts'

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

/**
 * Returns the headers to store with a delivery. Credentials and signatures are replaced by `[redacted]`. Headers of
 * another source than the default contain its path, with the submit that the webhook belongs to.
 */
export function keptHeaders(req: Request, { name, kind }: Source): Record<string, string> {
  const kept: Record<string, string> = {}
  const { headers } = req
  const { signatureHeaders } = kind
  const isSecret = (header: string) => credentialHeaders.has(header) || signatureHeaders.includes(header)
  for (const header of Object.keys(headers)) {
    const value = headers[header]
    if (value !== undefined) kept[header] = isSecret(header) ? redacted : String(value)
  }
  const sourceName = storedName({ name })
  if (sourceName !== null) kept[pathHeader] = webhookPath(sourceName, idempotencyKeyIn(req))
  return kept
}

function idempotencyKeyIn(req: Request): string | undefined {
  return pathIn({ [pathHeader]: `${req.path}${new URL(req.url, 'http://x').search}` }).idempotencyKey
}

/** Returns the headers for the quarantine, with the signature, to verify again. No other table keeps it. */
export function headersToVerify(req: Request, source: Source): Record<string, string> {
  const headers = keptHeaders(req, source)
  for (const name of source.kind.signatureHeaders) {
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
