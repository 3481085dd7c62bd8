import express from 'express'
import { onTestFinished } from 'vitest'
import { errorHandler, listen, notFound } from '../../../../src/platform/http/http.ts'
import { createLogger, type Logger } from '../../../../src/platform/logger.ts'
import { actorOf, guardAccess, type AccessOptions } from '../../../../src/platform/pages/access.ts'
import { createPool } from '../../../../src/platform/postgres/postgres.ts'
import { sessions as receiverSessions } from '../../../../src/receiver/domain/on-call-schema.ts'

/** A guarded listener with one page and one action behind the guard. */
export type Guarded = {
  databaseUrl: string
  token?: string
  clock?: () => Date
  name?: string
  sessionsTable?: AccessOptions['sessionsTable']
  logger?: Logger
  onRefused?: (why: string) => void
}

export async function startGuarded({
  databaseUrl,
  token,
  clock = () => new Date(),
  name = 'mediadock',
  sessionsTable = receiverSessions,
  onRefused = () => {},
  logger = createLogger('silent'),
}: Guarded) {
  const pool = createPool({ url: databaseUrl, max: 2 })
  const app = express()
  app.set('trust proxy', 'loopback')
  app.use(guardAccess({ token, name, title: 'the console', db: pool.db, sessionsTable, clock, logger, onRefused }))
  app.get('/page', (_req, res) => void res.send('inside'))
  app.get('/who', (req, res) => void res.send(actorOf(req)))
  app.post('/action', (_req, res) => void res.send('done'))
  app.use(notFound)
  app.use(errorHandler(logger))
  const listener = await listen({ handler: app, host: '127.0.0.1', port: 0, setting: 'PORT', logger })
  onTestFinished(async () => {
    await listener.close(0)
    await pool.close()
  })
  return listener
}
