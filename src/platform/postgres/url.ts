import fs from 'node:fs'
import type { ConnectionOptions } from 'node:tls'

/** As libpq names them; what they promise grows from left to right. */
const sslModes = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'] as const
type SslMode = (typeof sslModes)[number]

export type PostgresAddress = {
  /** The connection string without its TLS settings, which the server would take for settings of its own. */
  url: string
  ssl: false | 'prefer' | ConnectionOptions
}

/** A setting of the connection string that cannot be obeyed; the message never holds the string itself. */
export class PostgresUrlError extends Error {
  override name = 'PostgresUrlError'
  code = 'postgres_url' as const
}

/** Which of several hosts is meant, in libpq's words. */
const sessionAttributes = ['any', 'read-write', 'read-only', 'primary', 'standby', 'prefer-standby']

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
  const attributes = oneOf('target_session_attrs', sessionAttributes, parameters.get('target_session_attrs') ?? 'any')
  // The driver knows it by its absence only.
  if (attributes === 'any') parameters.delete('target_session_attrs')
  const url = parameters.size === 0 ? base : `${base}?${parameters.toString()}`

  const isSystem = given['sslrootcert'] === 'system'
  const mode = sslModeOf(given['sslmode'] ?? given['ssl'] ?? (isSystem ? 'verify-full' : 'disable'))
  if (mode === 'disable') return { url, ssl: false }
  const root = isSystem ? undefined : readFile('sslrootcert', given['sslrootcert'])
  const identity = {
    cert: readFile('sslcert', given['sslcert']),
    key: readFile('sslkey', given['sslkey']),
    passphrase: given['sslpassword'],
  }
  const own = Object.fromEntries(Object.entries(identity).filter(([, value]) => value !== undefined))
  if (mode === 'allow' || mode === 'prefer') return { url, ssl: 'prefer' }
  if (mode === 'require' && root === undefined && !isSystem) return { url, ssl: { ...own, rejectUnauthorized: false } }
  const trusted = { ...own, ...(root !== undefined && { ca: root }), rejectUnauthorized: true }
  // A root of one's own says who may be trusted; only verify-full asks for the name as well.
  return { url, ssl: mode === 'verify-full' ? trusted : { ...trusted, checkServerIdentity: () => undefined } }
}

/** Where a connection string leads, as `host:port/database`: without user, password and settings. */
export function placeOfUrl(connectionString: string): string {
  const [, hosts = '', database = ''] =
    /^postgres(?:ql)?:\/\/(?:[^/?#]*@)?([^/?#]*)(\/[^?#]*)?/s.exec(connectionString) ?? []
  const places = hosts.split(',').map((host) => (/:\d+$/.test(host) ? host : `${host}:5432`))
  return `${places.join(',')}${database}`
}

function sslModeOf(text: string): SslMode {
  return oneOf('sslmode', sslModes, text === 'true' ? 'require' : text === 'false' ? 'disable' : text)
}

function oneOf<Word extends string>(parameter: string, words: readonly Word[], text: string): Word {
  const known = words.find((word) => word === text)
  if (known === undefined) throw new PostgresUrlError(`has an unknown ${parameter}: it is one of ${words.join(', ')}`)
  return known
}

function readFile(parameter: string, file: string | undefined): string | undefined {
  if (file === undefined) return undefined
  try {
    return fs.readFileSync(file, 'utf8')
  } catch (error) {
    const why = error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
    throw new PostgresUrlError(`has an ${parameter} that cannot be read: ${why}`, { cause: error })
  }
}
