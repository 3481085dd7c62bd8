import { pino, stdSerializers, type Logger } from 'pino'

export type { Logger }

/** Header and field names whose values never reach a log line, whoever logs them. */
const secretNames = [
  'authorization',
  'x-api-key',
  'cookie',
  'set-cookie',
  'x-service-signature',
  'api_key',
  'signing_secret',
  'secret',
  'token',
  'password',
]

const redacted = secretNames.flatMap((name) => [`["${name}"]`, `*["${name}"]`, `*.headers["${name}"]`])

/** JSON lines on stdout. The logger redacts, so that no caller has to remember to. */
export function createLogger(level: string): Logger {
  return pino({
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label) => ({ level: label }) },
    serializers: { err: describeError },
    redact: { paths: redacted, censor: '[redacted]' },
  })
}

/**
 * A failed query says why and which statement, never with which values: they
 * are bodies and keys. Where it was called from stays in the stack.
 */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  if (error.name !== 'DrizzleQueryError' && !('query' in error)) return stdSerializers.err(error)
  const cause = error.cause instanceof Error ? error.cause : error
  const query = 'query' in error ? String(error.query).replace(/\s+/g, ' ').trim().slice(0, 120) : undefined
  return {
    type: error.name,
    message: cause.message.slice(0, 500),
    code: 'code' in cause ? cause.code : undefined,
    query,
    stack: error.stack?.split('\n').filter((line) => /^\s+at .*\/src\//.test(line)).join('\n'),
  }
}
