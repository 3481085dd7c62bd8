import type { IncomingMessage, ServerResponse } from 'node:http'
import type { RequestHandler } from 'express'
import { pinoHttp } from 'pino-http'
import { createLineBudget } from '../line-budget.ts'
import type { Logger } from '../logger.ts'

/**
 * One line per HTTP exchange. The serializers are slim: the default ones cost a
 * fifth of what a receiver can take in, and print headers. Refusals, which
 * anybody can cause, have a budget of lines.
 */
export function requestLogger(logger: Logger): RequestHandler {
  const mayLogRefusal = createLineBudget({ logger, what: 'refused requests' })
  return pinoHttp({
    logger,
    quietReqLogger: true,
    customAttributeKeys: { reqId: 'exchange_id' },
    serializers: { req: () => undefined, res: () => undefined },
    wrapSerializers: false,
    autoLogging: { ignore: ({ url }) => url === '/healthz' || url === '/readyz' || url === '/metrics' },
    customSuccessObject: (req, res, { responseTime }) => describe(req, res, responseTime),
    customErrorObject: (req, res, _error, { responseTime }) => describe(req, res, responseTime),
    customSuccessMessage: () => 'request answered',
    customErrorMessage: () => 'request failed',
    customLogLevel: (_req, { statusCode }) => {
      if (statusCode >= 500) return 'error'
      return statusCode < 400 || mayLogRefusal() ? 'info' : 'silent'
    },
  })
}

function describe(req: IncomingMessage, res: ServerResponse, ms: number): Record<string, unknown> {
  return { method: req.method, path: pathOf(wholeUrlOf(req)), status: res.statusCode, ms }
}

/** As it was asked for: a router takes off what it is mounted at. */
function wholeUrlOf(req: IncomingMessage): string | undefined {
  return 'originalUrl' in req && typeof req.originalUrl === 'string' ? req.originalUrl : req.url
}

const maxPathCharacters = 256

/** Without the query: a console's session token or a search may stand in it. */
function pathOf(url: string | undefined): string | undefined {
  return url?.split('?', 1)[0]?.slice(0, maxPathCharacters)
}
