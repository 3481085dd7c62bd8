import fs from 'node:fs'
import type { ConnectionOptions } from 'node:tls'
import { errorCode } from '../plain-words.ts'

/** libpq's names, in order of increasing security. */
const sslModes = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full']

export type PostgresAddress = {
  /** The connection string without its TLS settings, which the server would reject as unknown parameters. */
  url: string
  ssl: false | 'prefer' | ConnectionOptions
}

/** A setting of the connection string that is invalid. The message never contains the string. */
export class PostgresUrlError extends Error {
  override name = 'PostgresUrlError'
  code = 'postgres_url' as const
}

/** libpq's values for selecting one of several hosts. */
const sessionAttributes = ['any', 'read-write', 'read-only', 'primary', 'standby', 'prefer-standby']

const tlsParameters = ['sslmode', 'ssl', 'sslrootcert', 'sslcert', 'sslkey', 'sslpassword']

/**
 * Parses the TLS settings of a connection string, with libpq's names and meanings. But the default is `disable`, and
 * `allow` works like `prefer`. `require` encrypts and accepts any certificate, unless a root certificate is set.
 * `verify-ca` requires a certificate of that root, `verify-full` also the right host name. `sslrootcert=system` means
 * Node's root certificates. Throws PostgresUrlError for an unknown mode or an unreadable file.
 */
export function parsePostgresUrl(connectionString: string): PostgresAddress {
  const [base = '', query = ''] = connectionString.split('?', 2)
  const parameters = new URLSearchParams(query)
  const given = Object.fromEntries(tlsParameters.map((name) => [name, parameters.get(name) ?? undefined]))
  for (const name of tlsParameters) parameters.delete(name)
  const attributes = oneOf('target_session_attrs', sessionAttributes, parameters.get('target_session_attrs') ?? 'any')
  // The driver represents `any` by the absence of the parameter.
  if (attributes === 'any') parameters.delete('target_session_attrs')
  const url = parameters.size === 0 ? base : `${base}?${parameters.toString()}`

  const isSystem = given['sslrootcert'] === 'system'
  const stated = given['sslmode'] ?? given['ssl'] ?? (isSystem ? 'verify-full' : 'disable')
  const mode = oneOf('sslmode', sslModes, stated === 'true' ? 'require' : stated === 'false' ? 'disable' : stated)
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
  // With a custom root, only verify-full checks the host name.
  return { url, ssl: mode === 'verify-full' ? trusted : { ...trusted, checkServerIdentity: () => undefined } }
}

/** The address in a connection string as `host:port/database`, without user, password and settings. */
export function placeOfUrl(connectionString: string): string {
  const [, hosts = '', database = ''] =
    /^postgres(?:ql)?:\/\/(?:[^/?#]*@)?([^/?#]*)(\/[^?#]*)?/s.exec(connectionString) ?? []
  const places = hosts.split(',').map((host) => (/:\d+$/.test(host) ? host : `${host}:5432`))
  return `${places.join(',')}${database}`
}

function oneOf(parameter: string, words: readonly string[], text: string): string {
  if (words.includes(text)) return text
  throw new PostgresUrlError(`has an unknown ${parameter}: it is one of ${words.join(', ')}`)
}

function readFile(parameter: string, file: string | undefined): string | undefined {
  if (file === undefined) return undefined
  try {
    return fs.readFileSync(file, 'utf8')
  } catch (error) {
    throw new PostgresUrlError(`has an ${parameter} that cannot be read: ${errorCode(error)}`, { cause: error })
  }
}
