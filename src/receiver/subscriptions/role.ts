import { startLoop } from '../../platform/loop.ts'
import { createPoster } from '../../platform/outward/poster.ts'
import { resolve } from '../../platform/outward/resolver.ts'
import type { ReceiverSettings } from '../settings.ts'
import type { RunningSlice, SliceDeps } from '../slice.ts'
import { createSubscriptionMetrics } from './metrics.ts'
import { judgeSubscriptionUrl } from './posting.ts'
import { createSubscriptionSender, postDeadlineMs } from './sender.ts'

const pollMs = 1000
const connectionsPerHost = 16

/** Creates the HTTP client for posts. It checks each address when it is dialled. */
export function createSubscriptionPoster({ production }: Pick<ReceiverSettings, 'production'>) {
  return createPoster({
    judge: (url) => judgeSubscriptionUrl(url, { production }),
    resolve,
    timeoutMs: postDeadlineMs,
    connectionsPerHost,
  })
}

/** Starts the role that posts the feed to subscriptions. */
export function startSubscribing({
  settings,
  worker,
  pressure,
  registry,
  cut,
  after,
  signal,
}: SliceDeps): RunningSlice {
  const { db, clock, logger } = worker
  const posts = createSubscriptionMetrics({ registry, db, logger })
  const poster = createSubscriptionPoster(settings)
  const sender = createSubscriptionSender({
    db,
    clock,
    logger,
    cut,
    poster,
    pressure,
    onPosted: (name, outcome) => posts.inc({ name, outcome }),
    signal,
    wake: () => loop.wake(),
  })
  const loop = startLoop({ name: 'subscriptions', runOnce: sender.runOnce, idleMs: pollMs, after, logger, signal })
  const settled = async () => {
    await sender.settled()
    await poster.close()
  }
  return { loop, settled, onSequenced: loop.wake }
}
