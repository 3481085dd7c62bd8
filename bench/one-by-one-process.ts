import express from 'express'
import { parseKeys } from '../src/receiver/domain/keys.ts'
import { storeDeliveries } from '../src/receiver/intake/store.ts'
import { logLine, mountWebhooks } from '../src/receiver/intake/webhook.ts'
import { createLogger } from '../src/runtime/logger.ts'
import { createPool } from '../src/runtime/postgres/postgres.ts'
import { serve } from './serve.ts'
import { generationKeys } from './signed-requests.ts'

/**
 * The receiver's own way in, its log line and its statement, but each request
 * stored by itself, over ten connections: what is left between this and the
 * receiver is what accepting in batches gains. It lands nothing and keeps no arrivals.
 */
const { db } = createPool({ url: process.env['DATABASE_URL'] ?? '', max: 10 })
const logger = createLogger('info')
const keys = parseKeys(generationKeys)

const app = express()
app.disable('x-powered-by')
app.disable('etag')
mountWebhooks(app, {
  keys: () => keys,
  acceptor: { accept: async (delivery) => ((await storeDeliveries(db, [delivery])).size > 0 ? 'accepted' : 'duplicate') },
  maxBodyBytes: 1_048_576,
  clock: () => new Date(),
  onArrival: (arrival) => logger.info(logLine(arrival), 'webhook answered'),
  onRefused: () => {},
  onFault: (error) => logger.error({ err: error }, 'a delivery was not acknowledged'),
})
serve(app)
