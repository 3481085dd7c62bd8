import express, { type Express, type Router } from 'express'
import type { Logger } from '../logger.ts'
import { errorHandler, notFound } from './http.ts'
import { requestLogger } from './request-log.ts'

export type AppOptions = {
  logger: Logger
  trustProxy: string | number
  /** What logs its own exchanges and must not wait for anything else. */
  mountFirst?: (app: Express) => void
  rest?: Router
}

/** An Express application as our listeners have it: strict paths, one log line for each exchange, errors in the envelope. */
export function createApp({ logger, trustProxy, mountFirst, rest }: AppOptions): Express {
  const app = express()
  app.disable('x-powered-by')
  app.disable('etag')
  app.enable('case sensitive routing')
  app.enable('strict routing')
  app.set('trust proxy', trustProxy)
  mountFirst?.(app)
  app.use(requestLogger(logger))
  if (rest) app.use(rest)
  app.use(notFound)
  app.use(errorHandler(logger))
  return app
}
