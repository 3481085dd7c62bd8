import express from 'express'
import { onTestFinished } from 'vitest'
import { actorOf, guardAccess } from '../../../src/runtime/access.ts'
import { errorHandler, listen, notFound } from '../../../src/runtime/http.ts'
import { createLogger } from '../../../src/runtime/logger.ts'

/** A guarded listener with one page and one action behind the guard. */
export async function startGuarded({ token, clock = () => new Date(), name = 'mediadock' }: { token?: string; clock?: () => Date; name?: string }) {
  const logger = createLogger('silent')
  const app = express()
  app.set('trust proxy', 'loopback')
  app.use(guardAccess({ token, name, title: 'the console', clock }))
  app.get('/page', (_req, res) => void res.send('inside'))
  app.get('/who', (req, res) => void res.send(actorOf(req)))
  app.post('/action', (_req, res) => void res.send('done'))
  app.use(notFound)
  app.use(errorHandler(logger))
  const listener = await listen({ handler: app, host: '127.0.0.1', port: 0, setting: 'PORT', logger })
  onTestFinished(() => listener.close(0))
  return listener
}
