import { setTimeout as delay } from 'node:timers/promises'
import fc from 'fast-check'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { createLogger } from '../../src/platform/logger.ts'
import { startLoop } from '../../src/platform/loop.ts'
import { eventually } from '../support/eventually.ts'

const logger = createLogger('silent')
/** Longer than any of these tests. */
const idleMs = 600_000

type Round = () => Promise<{ more: boolean }>

function start(runOnce: Round, pauseMs = idleMs, more: { gatherMs?: number } = {}) {
  const stopping = new AbortController()
  const loop = startLoop({ name: 'test', runOnce, idleMs: pauseMs, ...more, logger, signal: stopping.signal })
  const stop = async () => {
    stopping.abort()
    await loop.done
  }
  onTestFinished(stop)
  return { ...loop, stop, signal: stopping.signal }
}

describe('a loop', () => {
  it('runs its first round at once', async () => {
    let rounds = 0
    start(async () => ({ more: ++rounds < 1 }))
    await eventually(() => rounds === 1, 1000)
  })

  it('runs again as long as there is more', async () => {
    let rounds = 0
    start(async () => ({ more: ++rounds < 100 }))
    await eventually(() => rounds === 100, 1000)
  })

  it('counts consecutive failures until a round succeeds', async () => {
    let fails = true
    let rounds = 0
    const { failing } = start(async () => {
      rounds += 1
      if (fails) throw new Error(`round ${rounds}`)
      return { more: false }
    }, 20)
    expect(failing()).toBeUndefined()
    await eventually(() => failing()?.failures === 3)
    expect(failing()).toMatchObject({ role: 'test', seconds: expect.any(Number), error: { message: 'round 3' } })
    fails = false
    await eventually(() => failing() === undefined)
  })

  it('pauses after a failure, however often it is woken', async () => {
    let rounds = 0
    const { wake } = start(async () => {
      rounds += 1
      throw new Error('it fails')
    })
    for (let n = 0; n < 60; n += 1) {
      wake()
      await delay(10)
    }
    expect(rounds).toBeGreaterThan(0)
    expect(rounds).toBeLessThan(10)
  })

  it('runs again after the pause', async () => {
    let rounds = 0
    start(async () => ({ more: ++rounds < 0 }), 20)
    await eventually(() => rounds > 3, 2000)
  })

  it('can be stopped while wake-ups gather', async () => {
    let rounds = 0
    const loop = start(async () => ({ more: ++rounds < 0 }), idleMs, { gatherMs: 60_000 })
    await eventually(() => rounds === 1, 1000)
    loop.wake()
    await loop.stop()
    expect(rounds).toBe(1)
  })

  it('runs one round for all wake-ups that gathered', async () => {
    let rounds = 0
    const loop = start(async () => ({ more: ++rounds < 0 }), idleMs, { gatherMs: 100 })
    await eventually(() => rounds === 1, 1000)
    loop.wake()
    loop.wake()
    await eventually(() => rounds === 2, 1000)
    await delay(300)
    expect(rounds).toBe(2)
  })

  it('does not gather while there is more', async () => {
    let rounds = 0
    start(async () => ({ more: ++rounds < 100 }), idleMs, { gatherMs: 60_000 })
    await eventually(() => rounds === 100, 1000)
  })

  it('continues after a round that exceeds its deadline', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    let rounds = 0
    const never = new Promise<{ more: boolean }>(() => {})
    start(async () => (++rounds === 1 ? never : { more: false }))
    await vi.advanceTimersByTimeAsync(30_000)
    vi.useRealTimers()
    await eventually(() => rounds === 2)
  })

  it('pauses after a failure even when it was woken meanwhile', async () => {
    let rounds = 0
    const loop = start(async () => {
      rounds += 1
      await delay(1)
      loop.wake()
      throw new Error('no')
    })
    await delay(300)
    expect(rounds).toBe(1)
  })

  it('wakes at once from its pause', async () => {
    const rounds: number[] = []
    const loop = start(async () => ({ more: rounds.push(performance.now()) < 0 }))
    await eventually(() => rounds.length === 1)
    for (let turn = 2; turn < 12; turn += 1) {
      const began = performance.now()
      loop.wake()
      await eventually(() => rounds.length === turn, 1000)
      expect((rounds.at(-1) ?? 0) - began).toBeLessThan(50)
    }
  })

  it('does not run without a wake-up', async () => {
    let rounds = 0
    const loop = start(async () => ({ more: ++rounds < 0 }))
    loop.wake()
    await eventually(() => rounds > 0)
    await loop.stop()
    expect(rounds).toBeLessThanOrEqual(2)
  })

  it('runs another round when it is woken in the middle of one, however often', async () => {
    let rounds = 0
    const first = Promise.withResolvers<void>()
    const loop = start(async () => {
      rounds += 1
      if (rounds === 1) await first.promise
      return { more: false }
    })
    await eventually(() => rounds === 1)
    for (let turn = 0; turn < 10; turn += 1) loop.wake()
    first.resolve()
    await eventually(() => rounds === 2, 1000)
  })

  it('loses no wake-up: a round that starts after it sees all work that was queued before it', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 1, maxLength: 40 }), async (pauses) => {
        let waiting = 0
        let taken = 0
        const loop = start(async () => {
          const seen = waiting
          waiting = 0
          // A round looks, and only then works: what comes meanwhile is for the next one.
          await delay(seen % 3)
          taken += seen
          return { more: false }
        })
        for (const pause of pauses) {
          waiting += 1
          loop.wake()
          if (pause > 0) await delay(pause - 1)
        }
        await eventually(() => taken === pauses.length, 2000)
        await loop.stop()
      }),
      { numRuns: 40 },
    )
  })

  it('never runs two rounds at once', async () => {
    let running = 0
    let rounds = 0
    const loop = start(async () => {
      running += 1
      expect(running).toBe(1)
      await delay(1)
      running -= 1
      rounds += 1
      return { more: rounds % 2 === 0 }
    })
    await eventually(() => {
      loop.wake()
      return rounds > 20
    })
  })
})

describe('a loop that is stopped', () => {
  it('ends at once in its pause', async () => {
    let rounds = 0
    const loop = start(async () => ({ more: ++rounds < 0 }))
    await eventually(() => rounds === 1)
    await loop.stop()
    loop.wake()
    expect(rounds).toBe(1)
  })

  it('lets the round in progress end, and starts none after it even if there is more', async () => {
    let rounds = 0
    const round = Promise.withResolvers<void>()
    const loop = start(async () => {
      rounds += 1
      await round.promise
      return { more: true }
    })
    let ended = false
    const stopped = loop.stop().then(() => (ended = true))
    await Promise.resolve()
    expect(ended).toBe(false)
    round.resolve()
    await stopped
    expect(rounds).toBe(1)
  })

  it('ends at once in the pause after a failure', async () => {
    let rounds = 0
    const loop = start(async () => {
      rounds += 1
      throw new Error('no')
    })
    await eventually(() => rounds === 4)
    const began = performance.now()
    await loop.stop()
    // The pause that it cuts short is at least 3 s by now.
    expect(performance.now() - began).toBeLessThan(2500)
  })

  it('runs no round if stopped before its start', async () => {
    let rounds = 0
    const loop = startLoop({
      name: 'test',
      runOnce: async () => ({ more: ++rounds < 0 }),
      idleMs,
      logger,
      signal: AbortSignal.abort(),
    })
    await loop.done
    expect(rounds).toBe(0)
  })
})

it('a failed round is retried after growing pauses, and success resets the pause', async () => {
  const starts: number[] = []
  const failing = new Set([0, 1, 2, 4])
  start(async () => {
    starts.push(performance.now())
    if (failing.has(starts.length - 1)) throw new Error('the database is away')
    return { more: false }
  }, 1)
  await eventually(() => starts.length > 5)
  const pauses = starts.slice(1).map((at, before) => at - (starts[before] ?? 0))
  const bounds = [
    [370, 700],
    [745, 1400],
    [1495, 2700],
    [0, 100],
    [370, 700],
  ] as const
  for (const [at, [least, most]] of bounds.entries()) {
    expect(pauses[at]).toBeGreaterThanOrEqual(least)
    expect(pauses[at]).toBeLessThan(most)
  }
})

it('a round that throws synchronously counts as failed', async () => {
  let rounds = 0
  start(() => {
    rounds += 1
    throw new Error('at once')
  })
  await eventually(() => rounds === 2, 3000)
})
