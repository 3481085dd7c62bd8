import type { IncomingMessage, ServerResponse } from 'node:http'
import { pinoHttp } from 'pino-http'
import type { Logger } from '../runtime/logger.ts'

/** One slim line per request; the serializers that come with pino-http cost more than the rest of a small answer. */
export function requestLog(logger: Logger) {
  return pinoHttp({
    logger,
    quietReqLogger: true,
    serializers: {
      req: ({ raw }: { raw: IncomingMessage }) => ({ method: raw.method, url: raw.url, remote: raw.socket.remoteAddress }),
      res: ({ raw }: { raw: ServerResponse }) => ({ status: raw.statusCode }),
    },
    customSuccessMessage: () => 'api request',
    customErrorMessage: () => 'api request failed',
    autoLogging: { ignore: (req) => req.url === '/healthz' || req.url === '/readyz' },
  })
}
