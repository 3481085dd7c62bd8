import { pino, type Logger, type LoggerOptions } from 'pino'
import { databaseErrorOf } from './postgres/errors.ts'

export type { Logger }

/** Header and field names, in lower case, whose values never reach a log line, whoever logs them and however deep. */
const secretNames = new Set([
  'authorization',
  'x-api-key',
  'cookie',
  'set-cookie',
  'x-service-signature',
  'api_key',
  'apikey',
  'signing_secret',
  'signingsecret',
  'secret',
  'secretkey',
  'token',
  'internaltoken',
  'consoletoken',
  'password',
  'databaseurl',
])
const maxDepth = 8

/** JSON may have them as they are; the terminal in which a line is read would do what they say. */
const controls = /[\u007f-\u009f]/
const allControls = new RegExp(controls, 'g')
const escaped = (control: string) => `\\u00${control.charCodeAt(0).toString(16)}`

const blockLength = 32_768
const blockEveryMs = 200
type Lines = { write: (line: string) => void }
let stdout: Lines | undefined

/**
 * Lines gathered to blocks: a write for each would cost a busy receiver a tenth
 * of its time. The stream below could gather them too, but measures all that it
 * has gathered at every line. What is left goes out at the exit.
 */
function gatherLines(): Lines {
  let block = ''
  let isGone = false
  const flush = () => {
    if (block === '' || isGone) return
    stream.write(block)
    block = ''
  }
  // Before the stream's own listeners, which write what it has and close it.
  process.on('beforeExit', flush).on('exit', flush)
  const stream = pino.destination({ dest: 1, sync: false })
  // A terminal that has closed takes no more lines, and the stream would try for ever before the exit.
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EIO') throw error
    isGone = true
    stream.flushSync = () => {}
  })
  setInterval(flush, blockEveryMs).unref()
  return {
    write: (line) => {
      block += controls.test(line) ? line.replace(allControls, escaped) : line
      if (block.length >= blockLength) flush()
    },
  }
}

/** JSON lines on stdout. The logger redacts, so that no caller has to remember to. */
export function createLogger(level: string): Logger {
  stdout ??= gatherLines()
  const options: LoggerOptions = {
    level,
    base: null,
    timestamp: timeMember,
    formatters: { level: (label) => ({ level: label }), log: (fields) => redact(fields) },
    serializers: { err: describeError },
  }
  const logger = pino(options, stdout)
  // What a child is bound to reaches no formatter; children inherit this method as they do all others.
  const child: Logger['child'] = Reflect.get(logger, 'child')
  logger.child = function (bindings, options) {
    return Reflect.apply(child, this, [redact(bindings), options])
  }
  return logger
}

let lastMs = 0
let lastTime = ''

/** The `time` of a line; thousands of lines share a millisecond's. */
function timeMember(): string {
  const now = Date.now()
  if (now !== lastMs) {
    lastMs = now
    lastTime = `,"time":"${new Date(now).toISOString()}"`
  }
  return lastTime
}

/** By hand: pino's own `redact` cannot look at every depth, and costs more than the rest of a line. */
function redact(fields: Record<string, unknown>, depth = 0): Record<string, unknown> {
  const kept: Record<string, unknown> = {}
  for (const name of Object.keys(fields)) {
    const value = fields[name]
    kept[name] =
      value !== undefined && secretNames.has(name.toLowerCase()) ? '[redacted]' : redactValue(value, depth + 1)
  }
  return kept
}

function redactValue(value: unknown, depth: number): unknown {
  if (Array.isArray(value)) return depth > maxDepth ? '[deep]' : value.map((item) => redactValue(item, depth + 1))
  if (!isPlainObject(value)) return value
  return depth > maxDepth ? '[deep]' : redact(value, depth)
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}

/**
 * What is known to be safe of an error, and of its causes: other members carry
 * what was being worked on, like the `input` of an invalid URL.
 */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  if (databaseErrorOf(error) !== error || 'query' in error) return describeQueryError(error)
  return {
    type: error.name,
    message: error.message,
    code: codeOf(error),
    stack: error.stack,
    cause: error.cause === undefined ? undefined : describeError(error.cause),
    errors: error instanceof AggregateError ? error.errors.map(describeError) : undefined,
  }
}

/**
 * A failed query says why and which statement, never with which values: they
 * are bodies and keys. Where it was called from stays in the stack.
 */
function describeQueryError(error: Error): unknown {
  const database = databaseErrorOf(error)
  const cause = database instanceof Error ? database : error
  const code = codeOf(cause)
  // SQLSTATE class 22 (data) quotes the value that it did not like.
  const message = String(code).startsWith('22') ? cause.message.replace(/".*"/s, '"[redacted]"') : cause.message
  return {
    type: error.name,
    message: message.slice(0, 500),
    code,
    query:
      'query' in error && typeof error.query === 'string'
        ? error.query.replace(/\s+/g, ' ').trim().slice(0, 120)
        : undefined,
    stack: error.stack
      ?.split('\n')
      .filter((line) => /^\s+at .*\/src\//.test(line))
      .join('\n'),
  }
}

function codeOf(error: Error): unknown {
  return 'code' in error ? error.code : undefined
}
