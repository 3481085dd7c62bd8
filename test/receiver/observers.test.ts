import { randomUUID } from 'node:crypto'
import { expect, it, onTestFinished, vi } from 'vitest'
import type { Arrival } from '../../src/receiver/intake/webhook.ts'
import { logFault } from '../../src/receiver/observers.ts'
import { watchedLogger } from '../platform/support/watched-logger.ts'

it('logs the first 200 internal errors of a flood, then 20 a second', () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  onTestFinished(() => void vi.useRealTimers())
  const { logger, lines } = watchedLogger()
  const note = logFault(logger)
  const arrival: Arrival = {
    arrivedAt: new Date(),
    outcome: 'unavailable',
    sourceName: null,
    reason: 'internal_error',
    status: 503,
    webhookId: randomUUID(),
    deliveryId: undefined,
    requestId: undefined,
    keyName: undefined,
    remote: '192.0.2.1',
    bytes: 2,
    skewSeconds: undefined,
    timestampMismatch: false,
    ackMs: 1,
  }
  const flood = () => {
    for (let n = 0; n < 600; n += 1) note(new TypeError('a bug in the hot path'), arrival)
  }
  flood()
  expect(lines()).toHaveLength(200)
  vi.advanceTimersByTime(1000)
  flood()
  expect(lines()).toHaveLength(220)
})
