import express, { type Express } from 'express'
import type { Logger } from '../logger.ts'
import { errorHandler, type Localize, notFound } from './http.ts'
import { requestLogger } from './request-log.ts'

export type AppOptions = {
  logger: Logger
  trustProxy: string | number
  localize?: Localize
  mount: (app: Express) => void
}

/** Creates an Express application with strict paths, one log line per exchange, and errors in the envelope. */
export function createApp({ logger, trustProxy, localize, mount }: AppOptions): Express {
  const app = express()
  app.disable('x-powered-by')
  app.disable('etag')
  app.enable('case sensitive routing')
  app.enable('strict routing')
  app.set('trust proxy', trustProxy)
  app.use(requestLogger(logger))
  mount(app)
  app.use(notFound)
  app.use(errorHandler(logger, localize))
  return app
}
