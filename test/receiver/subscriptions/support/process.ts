import { createLogger } from '../../../../src/platform/logger.ts'
import { startLoop } from '../../../../src/platform/loop.ts'
import { createPool } from '../../../../src/platform/postgres/postgres.ts'
import { createSubscriptionPoster, createSubscriptionSender } from '../../../../src/receiver/subscriptions/role.ts'

/** The role alone, as a process that can be killed: its argument is the database, and how long it leases. */
const [url = '', leaseMs = ''] = process.argv.slice(2)
const { db } = createPool({ url, max: 4 })
const { signal } = new AbortController()
const logger = createLogger('silent')
const sender = createSubscriptionSender({
  db,
  logger,
  signal,
  cut: signal,
  clock: () => new Date(),
  poster: createSubscriptionPoster({ production: false }),
  pressure: { paced: (round) => round() },
  onPosted: () => {},
  wake: () => loop.wake(),
  leaseMs: Number(leaseMs),
})
const loop = startLoop({ name: 'subscriptions', runOnce: sender.runOnce, idleMs: 200, logger, signal })
