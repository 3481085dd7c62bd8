import { databaseErrorOf } from './errors.ts'

/** Why Postgres cannot be used, as one line that says what to do; and whether waiting may mend it. */
export type PostgresFailure = { words: string; passing: boolean }

type DriverError = Error & { code: string; address?: unknown; port?: unknown; syscall?: unknown }

/** What the network and the driver say: not reached, or lost on the way. */
const network: Record<string, string> = {
  ECONNREFUSED: 'nothing accepts connections there',
  ENOENT: 'there is no such socket',
  ECONNRESET: 'the connection was cut',
  EPIPE: 'the connection was cut',
  ETIMEDOUT: 'no answer in time',
  EHOSTUNREACH: 'there is no way to that host',
  EHOSTDOWN: 'that host is down',
  ENETUNREACH: 'there is no way to that network',
  ENETDOWN: 'the network is down',
  ENOTFOUND: 'DNS does not know that name',
  EAI_AGAIN: 'DNS does not answer',
  CONNECT_TIMEOUT: 'no answer in time',
  CONNECTION_CLOSED: 'the connection was cut',
  CONNECTION_ENDED: 'the connection has ended',
  CONNECTION_DESTROYED: 'the connection has ended',
  deadline_exceeded: 'no answer in time',
}

/** What a certificate was refused for. */
const certificates: Record<string, string> = {
  DEPTH_ZERO_SELF_SIGNED_CERT: 'it is self-signed',
  SELF_SIGNED_CERT_IN_CHAIN: 'its chain ends in a certificate that is not trusted here',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'nobody who is trusted here has signed it',
  UNABLE_TO_GET_ISSUER_CERT: 'its issuer is not known here',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'its issuer is not known here',
  CERT_HAS_EXPIRED: 'it has expired',
  CERT_NOT_YET_VALID: 'it is not valid yet',
  CERT_REVOKED: 'it was revoked',
  CERT_UNTRUSTED: 'it is not trusted here',
  ERR_TLS_CERT_ALTNAME_INVALID: 'it is for another host',
  HOSTNAME_MISMATCH: 'it is for another host',
}

/** What to do about a SQLSTATE, whose own message goes before it. */
const advice: Record<string, string> = {
  '08007':
    'it is committed there, and may be lost with that server: end whoever is stuck by pg_terminate_backend, not by pg_cancel_backend',
  '28P01': 'correct the user or the password in the database URL',
  '28000': "correct the user in the database URL, or the server's pg_hba.conf",
  '3D000': 'create it, or correct the database URL',
  '42501': 'the role lacks a right; ops/roles.sql has the grants',
  '3F000': 'run "mediadock migrate", the schema is missing or of another version',
  '42P01': 'run "mediadock migrate", the schema is missing or of another version',
  '42703': 'run "mediadock migrate", the schema is missing or of another version',
  '42883': 'run "mediadock migrate", the schema is missing or of another version',
  '53300': 'raise max_connections, or lower DATABASE_POOL_SIZE',
  '55P03': 'somebody holds a lock, a dump perhaps',
  '25006': 'this is a standby, or Postgres was set read-only',
}

/**
 * Turns an error of the driver, drizzle's wrapping or not, into words; undefined
 * for what is no error of Postgres or of the way to it. Neither a statement, nor
 * its parameters, nor a password is in them.
 */
export function explainPostgres(error: unknown): PostgresFailure | undefined {
  const cause = driverErrorOf(error)
  if (cause === undefined) return undefined
  const { code } = cause
  if (cause.name === 'PostgresError') return { words: sqlStateWords(code, cause.message), passing: mayPass(code) }
  const certificate = certificates[code]
  if (certificate !== undefined)
    return {
      words: `the certificate of Postgres${placeOf(cause)} is refused, ${certificate}: correct the certificate, sslrootcert or sslmode`,
      passing: false,
    }
  if (/^(?:ERR_SSL|ERR_TLS|EPROTO)/.test(code))
    return {
      words: `TLS with Postgres${placeOf(cause)} fails (${code}): does the server speak TLS? Otherwise correct sslmode in the database URL`,
      passing: false,
    }
  if (/^(?:SASL|AUTH_TYPE)/.test(code))
    return {
      words: `signing in to Postgres${placeOf(cause)} fails (${code}): correct the user or the password in the database URL`,
      passing: false,
    }
  // Each of several hosts was asked, and the last of them says that it is another one, mostly a standby.
  if (code === 'TARGET_SESSION_ATTRS')
    return {
      words: `${cause.message}: a failover that is under way ends this by itself; otherwise look which of them takes writes`,
      passing: true,
    }
  const reason = network[code]
  if (reason === undefined) return undefined
  return {
    words: `Postgres cannot be reached${placeOf(cause)}, ${reason} (${code === 'deadline_exceeded' ? 'deadline' : code}): is it running, and are host and port of the database URL right?`,
    passing: true,
  }
}

/**
 * Any error in words for a person: Postgres's and the network's explained, everything else by its own message,
 * never the statement that drizzle puts around it.
 */
export function failureWords(error: unknown): string {
  const failure = explainPostgres(error)
  if (failure) return failure.words
  const cause = databaseErrorOf(error)
  return cause instanceof Error ? cause.message || cause.name : String(cause)
}

function sqlStateWords(code: string, message: string): string {
  const what = `Postgres says: ${message.replaceAll(/\s*\n\s*/g, ' ')} (${code})`
  return advice[code] === undefined ? what : `${what}: ${advice[code]}`
}

/** Lost connections, a server that starts or stops, no free connection or memory, a standby, a lock in the way. */
function mayPass(code: string): boolean {
  return /^(?:08|40|53|57P)/.test(code) || code === '25006' || code === '55P03'
}

function driverErrorOf(error: unknown): DriverError | undefined {
  const cause = databaseErrorOf(error)
  if (!(cause instanceof Error)) return undefined
  // Of a name with several addresses, none of which answers.
  if (cause instanceof AggregateError && cause.errors.length > 0) return driverErrorOf(cause.errors[0])
  if (!hasCode(cause) || (cause.code === 'ENOENT' && cause.syscall !== 'connect')) return undefined
  return cause
}

function hasCode(error: Error): error is DriverError {
  return 'code' in error && typeof error.code === 'string'
}

/** The driver does not always know it, and then says "undefined". */
function placeOf({ address, port }: DriverError): string {
  const host = Array.isArray(address) ? address.join(',') : address
  if (typeof host !== 'string' || host === '') return ''
  const at = Array.isArray(port) ? port[0] : port
  return typeof at === 'number' ? ` at ${host}:${at}` : ` at ${host}`
}
