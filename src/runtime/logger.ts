import { pino, type Logger } from 'pino'

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
    redact: { paths: redacted, censor: '[redacted]' },
  })
}
