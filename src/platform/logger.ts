import { pino, type Logger, type LoggerOptions } from 'pino'
import { databaseErrorOf } from './postgres/errors.ts'

export type { Logger }

/** Names of headers and fields, in lower case, whose values are redacted at any depth. */
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
/** The levels of a logged object: enough for an error with its causes. A cyclic object is cut here. */
const maxLevels = 8

/** JSON allows these characters, but a terminal would obey them. */
const controls = /[\u007f-\u009f]/
const allControls = new RegExp(controls, 'g')
const escaped = (control: string) => `\\u00${control.charCodeAt(0).toString(16)}`

type Lines = { write: (line: string) => void }
let stdout: Lines | undefined

/**
 * Gathers lines into blocks, because one write per line is slow on a busy receiver. pino's own buffering measures its
 * whole buffer at every line. The rest is written at exit.
 */
function gatherLines(): Lines {
  let block = ''
  let isGone = false
  const flush = () => {
    if (block === '' || isGone) return
    stream.write(block)
    block = ''
  }
  // Runs before the stream's own exit listeners, which flush and close it.
  process.on('beforeExit', flush).on('exit', flush)
  const stream = pino.destination({ dest: 1, sync: false })
  // A closed terminal accepts no more lines. The stream would retry for ever and block the exit.
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EIO') throw error
    isGone = true
    stream.flushSync = () => {}
  })
  setInterval(flush, 200).unref()
  return {
    write: (line) => {
      block += controls.test(line) ? line.replace(allControls, escaped) : line
      if (block.length >= 32_768) flush()
    },
  }
}

/** Creates a logger that writes JSON lines to stdout and redacts secrets. */
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
  // `formatters` do not see the bindings of a child, so they are redacted here. Children inherit this method.
  const child: Logger['child'] = Reflect.get(logger, 'child')
  logger.child = function (bindings, options) {
    return Reflect.apply(child, this, [redact(bindings), options])
  }
  return logger
}

let lastMs = 0
let lastTime = ''

/** The `time` member of a line, cached per millisecond. */
function timeMember(): string {
  const now = Date.now()
  if (now !== lastMs) {
    lastMs = now
    lastTime = `,"time":"${new Date(now).toISOString()}"`
  }
  return lastTime
}

/** Replaces pino's own `redact`, which does not look at every depth and is slow. */
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
  if (Array.isArray(value)) return depth > maxLevels ? '[deep]' : value.map((item) => redactValue(item, depth + 1))
  if (!isPlainObject(value)) return value
  return depth > maxLevels ? '[deep]' : redact(value, depth)
}

function isPlainObject(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}

/**
 * Copies only safe members of an error and its causes. Other members may contain data, like the `input` of an invalid
 * URL.
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
 * Describes a failed query by its cause and statement, without values, because they are bodies and keys. The stack
 * shows the caller.
 */
function describeQueryError(error: Error): unknown {
  const database = databaseErrorOf(error)
  const cause = database instanceof Error ? database : error
  const code = codeOf(cause)
  // Messages of SQLSTATE class 22 (data) quote the invalid value.
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
