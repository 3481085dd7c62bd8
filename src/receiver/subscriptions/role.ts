import { startLoop, type Loop } from '../../platform/loop.ts'
import { createPoster } from '../../platform/outward/poster.ts'
import { resolve } from '../../platform/outward/resolver.ts'
import type { Pressure } from '../intake/pressure.ts'
import type { WorkerDeps } from '../landing/worker.ts'
import type { ReceiverSettings } from '../settings.ts'
import { judgeSubscriptionUrl } from './posting.ts'
import { createSubscriptionSender, postDeadlineMs, type SubscriptionSenderDeps } from './sender.ts'

export type SubscribingDeps = Pick<SubscriptionSenderDeps, 'onPosted' | 'signal'> & {
  settings: ReceiverSettings
  landing: WorkerDeps
  pressure: Pressure
  /** Cuts the posts in flight. */
  cut: AbortSignal
  after: Promise<void>
}

export type Subscribing = { loop: Loop; settled: () => Promise<void> }

const pollMs = 1000
const connectionsPerHost = 16

/** How subscriptions are posted to: guarded at the moment of the dial. */
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
  landing,
  pressure,
  cut,
  onPosted,
  after,
  signal,
}: SubscribingDeps): Subscribing {
  const { db, clock, logger } = landing
  const poster = createSubscriptionPoster(settings)
  const sender = createSubscriptionSender({
    db,
    clock,
    logger,
    cut,
    poster,
    pressure,
    onPosted,
    signal,
    wake: () => loop.wake(),
  })
  const loop = startLoop({ name: 'subscriptions', runOnce: sender.runOnce, idleMs: pollMs, after, logger, signal })
  const settled = async () => {
    await sender.settled()
    await poster.close()
  }
  return { loop, settled }
}
