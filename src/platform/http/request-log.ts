import type { IncomingMessage, ServerResponse } from 'node:http'
import type { RequestHandler } from 'express'
import { pinoHttp } from 'pino-http'
import { createLineBudget } from '../line-budget.ts'
import type { Logger } from '../logger.ts'

/** The log line of an exchange, instead of method and path. `silent` suppresses the line. */
export type LogNote = { message: string; fields: Record<string, unknown> } | 'silent'

declare module 'http' {
  interface ServerResponse {
    /** Set by noteForLog(). A WeakMap would be slow for one entry per answer. */
    logNote?: LogNote
  }
}

/** Sets the log line of an exchange. It is written when the answer ends, or now if the client has already gone. */
export function noteForLog(res: ServerResponse, note: LogNote): void {
  res.logNote = note
  if (note !== 'silent' && res.closed) res.log[levelOf(res)](note.fields, note.message)
}

/** Logs one line per HTTP exchange, without headers. Lines of refused requests are limited. */
export function requestLogger(logger: Logger): RequestHandler {
  const mayLogRefusal = createLineBudget({ logger, what: 'refused requests' })
  return pinoHttp({
    logger: withoutChildren(logger),
    quietReqLogger: true,
    serializers: { req: () => undefined, res: () => undefined },
    wrapSerializers: false,
    autoLogging: { ignore: ({ url }) => url === '/healthz' || url === '/readyz' || url === '/metrics' },
    customSuccessObject: (req, res, { responseTime }) => describe(req, res, responseTime),
    customErrorObject: (req, res, _error, { responseTime }) => describe(req, res, responseTime),
    customSuccessMessage: (_req, res) => messageOf(res.logNote) ?? 'request answered',
    customErrorMessage: (_req, res) => messageOf(res.logNote) ?? 'request failed',
    customLogLevel: (_req, res) => {
      const note = res.logNote
      if (note === 'silent') return 'silent'
      return note || res.statusCode < 400 || res.statusCode >= 500 || mayLogRefusal() ? levelOf(res) : 'silent'
    },
  })
}

/** Disables the two child loggers that pino-http creates per request. They are slow and no handler uses them. */
function withoutChildren(logger: Logger): Logger {
  const slim: Logger = Object.create(logger, { child: { value: () => slim } })
  return slim
}

function levelOf({ statusCode }: ServerResponse): 'info' | 'error' {
  return statusCode >= 500 ? 'error' : 'info'
}

function messageOf(note: LogNote | undefined): string | undefined {
  return note === 'silent' ? undefined : note?.message
}

function describe(req: IncomingMessage, res: ServerResponse, ms: number): Record<string, unknown> {
  const note = res.logNote
  if (note !== undefined && note !== 'silent') return note.fields
  // A router removes its mount path from `url`. The query may contain a secret or a search.
  const url = 'originalUrl' in req && typeof req.originalUrl === 'string' ? req.originalUrl : req.url
  return { method: req.method, path: url?.split('?', 1)[0]?.slice(0, 256), status: res.statusCode, ms }
}
