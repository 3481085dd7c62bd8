import { randomUUID } from 'node:crypto'
import { onTestFinished } from 'vitest'
import { createLogger, type Logger } from '../../src/platform/logger.ts'
import { createPool, type Database } from '../../src/platform/postgres/postgres.ts'
import { timeOf } from '../../src/platform/postgres/time.ts'
import { deliveryId, toDelivery, type Delivery } from '../../src/receiver/domain/delivery.ts'
import { storeDeliveries } from '../../src/receiver/intake/store.ts'
import { createRestingQueues } from '../../src/receiver/reconciling/due.ts'
import { createSetAside } from '../../src/receiver/reconciling/poll-claims.ts'
import { createPoller, restMs, type Poller } from '../../src/receiver/reconciling/poller.ts'
import type { PollingDeps } from '../../src/receiver/reconciling/polling.ts'
import { defaultSource, keysOf, liveKey, sandboxKey } from './receiver.ts'

/** The dependencies of claiming polls: no caller waits. No lease is renewed, since the test says what time it is. */
export function claiming({ clock, logger }: { clock: () => Date; logger: Logger }) {
  const keepLease = () => async () => {}
  return { keepLease, awaited: (): readonly string[] => [], setAside: createSetAside({ clock, logger }) }
}

export type TestWorker = PollingDeps & { fetchRatePerMinute: number; setNow: (now: Date) => void }

/**
 * The dependencies of landing and reconciling, driven by the test, on a clock that stands still and without a provider.
 */
export function createTestWorker({
  databaseUrl,
  max = 4,
  ...given
}: { databaseUrl: string; max?: number } & Partial<TestWorker>): TestWorker {
  const pool = createPool({ url: databaseUrl, max, keepsPlans: true })
  onTestFinished(() => pool.close())
  const keys = keysOf(liveKey, sandboxKey)
  let now = new Date()
  const { clock = () => now } = given
  const logger = createLogger('silent')
  return {
    db: pool.db,
    keys: () => keys,
    fetchResult: async ({ keyName }) => ({ answer: { kind: 'unreachable', detail: 'nobody is there' }, keyName }),
    mediaHosts: undefined,
    stuckAfterSeconds: 120,
    fetchRatePerMinute: 100_000,
    clock,
    time: timeOf(clock),
    ...claiming({ clock, logger }),
    logger,
    cut: new AbortController().signal,
    onProcessed: () => {},
    setNow: (at) => {
      now = at
    },
    ...given,
  }
}

/** A poller that shares nothing with others but the database. */
export function testPoller(deps: PollingDeps): Poller {
  return createPoller({ ...deps, resting: createRestingQueues(deps, restMs) })
}

/** A body as the listener stores it, with a new id. */
export function newDelivery(body: Buffer, receivedAt = new Date()): Delivery {
  const webhookId = randomUUID()
  const timestampSeconds = Math.floor(receivedAt.getTime() / 1000)
  const signed = { keyName: 'live', environment: 'live', timestampSeconds } as const
  return toDelivery({
    source: defaultSource,
    id: deliveryId(webhookId, body),
    webhookId,
    ...signed,
    receivedAt,
    headers: {},
    body,
  })
}

export async function store(db: Database, bodies: readonly Buffer[]): Promise<void> {
  await storeDeliveries(
    db,
    bodies.map((body) => newDelivery(body)),
  )
}
