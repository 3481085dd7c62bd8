import fs from 'node:fs'
import type { ConnectionOptions } from 'node:tls'

/** As libpq names them; what they promise grows from left to right. */
export const sslModes = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'] as const
export type SslMode = (typeof sslModes)[number]

export type PostgresAddress = {
  /** The connection string without what is said of TLS, which the server would take for settings of its own. */
  url: string
  ssl: false | 'prefer' | ConnectionOptions
}

/** A setting of the connection string that cannot be obeyed; the message never holds the string itself. */
export class PostgresUrlError extends Error {
  override name = 'PostgresUrlError'
  code = 'postgres_url' as const
}

const tlsParameters = ['sslmode', 'ssl', 'sslrootcert', 'sslcert', 'sslkey', 'sslpassword']

/**
 * Reads what a connection string says of TLS, with libpq's names and meanings:
 * `require` encrypts and trusts anyone, unless a root certificate is given;
 * `verify-ca` wants a certificate of that root; `verify-full` one for that host.
 * `sslrootcert=system` stands for the roots that Node knows. Throws
 * PostgresUrlError for an unknown mode or a file that cannot be read.
 */
export function parsePostgresUrl(connectionString: string): PostgresAddress {
  const [base = '', query = ''] = connectionString.split('?', 2)
  const parameters = new URLSearchParams(query)
  const given = Object.fromEntries(tlsParameters.map((name) => [name, parameters.get(name) ?? undefined]))
  for (const name of tlsParameters) parameters.delete(name)
  const url = parameters.size === 0 ? base : `${base}?${parameters.toString()}`

  const isSystem = given['sslrootcert'] === 'system'
  const mode = sslModeOf(given['sslmode'] ?? given['ssl'] ?? (isSystem ? 'verify-full' : 'disable'))
  if (mode === 'disable') return { url, ssl: false }
  const root = isSystem ? undefined : readFile('sslrootcert', given['sslrootcert'])
  const identity = { cert: readFile('sslcert', given['sslcert']), key: readFile('sslkey', given['sslkey']), passphrase: given['sslpassword'] }
  const own = Object.fromEntries(Object.entries(identity).filter(([, value]) => value !== undefined))
  if (mode === 'allow' || mode === 'prefer') return { url, ssl: 'prefer' }
  if (mode === 'require' && root === undefined && !isSystem) return { url, ssl: { ...own, rejectUnauthorized: false } }
  const trusted = { ...own, ...(root !== undefined && { ca: root }), rejectUnauthorized: true }
  // A root of one's own says who may be trusted; only verify-full asks for the name as well.
  return { url, ssl: mode === 'verify-full' ? trusted : { ...trusted, checkServerIdentity: () => undefined } }
}

function sslModeOf(text: string): SslMode {
  const mode = sslModes.find((known) => known === (text === 'true' ? 'require' : text === 'false' ? 'disable' : text))
  if (mode === undefined) throw new PostgresUrlError(`has an unknown sslmode: use one of ${sslModes.join(', ')}`)
  return mode
}

function readFile(parameter: string, file: string | undefined): string | undefined {
  if (file === undefined) return undefined
  try {
    return fs.readFileSync(file, 'utf8')
  } catch (error) {
    const why = error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
    throw new PostgresUrlError(`names a file in ${parameter} that cannot be read: ${why}`, { cause: error })
  }
}
