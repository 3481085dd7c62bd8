import { getSystemErrorMessage } from 'node:util'
import { databaseErrorOf } from './errors.ts'

/** Why Postgres cannot be used, as one line that says what to do. `passing`: the failure may pass without action. */
export type PostgresFailure = { words: string; passing: boolean }

type DriverError = Error & { code: string; errno?: unknown; address?: unknown; port?: unknown; syscall?: unknown }

/** Codes of the network and the driver that mean that the server was not reached, or did not answer. */
const unreachable =
  /^(?:ECONN\w+|EHOST\w+|ENET\w+|ENOENT|EPIPE|ETIMEDOUT|ENOTFOUND|EAI_AGAIN|CONNECT_TIMEOUT|CONNECTION_\w+|deadline_exceeded)$/

/** Codes of OpenSSL and Node for a certificate that is refused. */
const certificate = /^(?:CERT_|SELF_SIGNED_|DEPTH_ZERO_|UNABLE_TO_|HOSTNAME_|ERR_TLS_CERT_)/

const migrateFirst = 'run "mediadock migrate", the schema is missing or of another version'
/** Actions for a SQLSTATE. Postgres's message comes first. */
const advice: Record<string, string> = {
  '08007':
    'the transaction is committed on the primary but not on its standby, and may be lost with the primary: ' +
    'end blocked sessions with pg_terminate_backend, not with pg_cancel_backend',
  '28P01': 'correct the user or the password in the database URL',
  '28000': "correct the user in the database URL, or the server's pg_hba.conf",
  '3D000': 'create it, or correct the database URL',
  '42501': 'grant the missing right: see ops/roles.sql',
  '3F000': migrateFirst,
  '42P01': migrateFirst,
  '42703': migrateFirst,
  '42883': migrateFirst,
  '53300': 'raise max_connections, or lower DATABASE_POOL_SIZE',
  '55P03': 'another session holds a lock, perhaps a dump',
  '25006': 'this server is a standby, or it was set read-only',
}

/** Explains an error of Postgres or the connection, without statement and parameters. Undefined for others. */
export function explainPostgres(error: unknown): PostgresFailure | undefined {
  const cause = driverErrorOf(error)
  if (cause === undefined) return undefined
  const { code } = cause
  if (cause.name === 'PostgresError') {
    const what = `Postgres says: ${cause.message.replaceAll(/\s*\n\s*/g, ' ')} (${code})`
    // A lost connection or conflict, a server that starts or stops or lacks resources, a standby, or a lock.
    const passing = /^(?:08|40|53|57P|25006$|55P03$)/.test(code)
    return { words: advice[code] === undefined ? what : `${what}: ${advice[code]}`, passing }
  }
  const at = placeOf(cause)
  const failure = (words: string, passing = false): PostgresFailure => ({ words, passing })
  if (certificate.test(code)) {
    // Node adds a hint about its own options after a semicolon.
    const why = cause.message.split(';', 1).join()
    return failure(
      `the certificate of Postgres${at} is refused, ${why}: correct the certificate, sslrootcert or sslmode`,
    )
  }
  if (/^(?:ERR_SSL|ERR_TLS|EPROTO)/.test(code))
    return failure(
      `TLS with Postgres${at} failed (${code}): check that the server supports TLS, or correct sslmode in the database URL`,
    )
  if (/^(?:SASL|AUTH_TYPE)/.test(code))
    return failure(`signing in to Postgres${at} failed (${code}): correct the user or the password in the database URL`)
  // All hosts were tried. The last one has another role, usually standby.
  if (code === 'TARGET_SESSION_ATTRS')
    return failure(`${cause.message}: wait for a failover in progress to end, or check which host accepts writes`, true)
  if (!unreachable.test(code)) return undefined
  const why = `${reasonOf(cause)} (${code === 'deadline_exceeded' ? 'deadline' : code})`
  const action = 'check that it is running, and the host and port of the database URL'
  return failure(`Postgres cannot be reached${at}, ${why}: ${action}`, true)
}

/** The reason of the operating system or of DNS. The driver's own errors have none. */
function reasonOf({ code, errno }: DriverError): string {
  if (typeof errno === 'number') return getSystemErrorMessage(errno)
  return code.startsWith('CONNECTION_') ? 'the connection was cut' : 'no answer in time'
}

/** Explains any error: those of Postgres and the network with an action, others by their own message. */
export function failureWords(error: unknown): string {
  const failure = explainPostgres(error)
  if (failure) return failure.words
  const cause = databaseErrorOf(error)
  return cause instanceof Error ? cause.message || cause.name : String(cause)
}

function driverErrorOf(error: unknown): DriverError | undefined {
  const cause = databaseErrorOf(error)
  if (!(cause instanceof Error)) return undefined
  // The error of a name with several addresses, none of which answered.
  if (cause instanceof AggregateError && cause.errors.length > 0) return driverErrorOf(cause.errors[0])
  if (!hasCode(cause) || (cause.code === 'ENOENT' && cause.syscall !== 'connect')) return undefined
  return cause
}

function hasCode(error: Error): error is DriverError {
  return 'code' in error && typeof error.code === 'string'
}

function placeOf({ address, port }: DriverError): string {
  const host = Array.isArray(address) ? address.join(',') : address
  if (typeof host !== 'string' || host === '') return ''
  const at = Array.isArray(port) ? port[0] : port
  return typeof at === 'number' ? ` at ${host}:${at}` : ` at ${host}`
}
