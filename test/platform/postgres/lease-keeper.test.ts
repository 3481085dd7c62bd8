import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { createLeaseKeeper } from '../../../src/platform/postgres/lease-keeper.ts'

const leaseMs = 10_000

/** A keeper over a Postgres that keeps what the test says. */
function setUp() {
  const asked: string[][] = []
  const failures: unknown[] = []
  let renew: (held: readonly string[]) => Promise<readonly string[]> = async (held) => held
  const keeper = createLeaseKeeper<string>({
    renew: async (held) => {
      asked.push([...held])
      return renew(held)
    },
    leaseMs,
    logger: { warn: (facts: unknown) => void failures.push(facts) },
  })
  return {
    ...keeper,
    asked,
    failures,
    setRenew: (given: typeof renew) => {
      renew = given
    },
  }
}

describe('a keeper of leases', () => {
  beforeEach(() => {
    vi.useFakeTimers()
    onTestFinished(() => void vi.useRealTimers())
  })

  it('renews all held rows together each second, and none after their release', async () => {
    const { keep, asked } = setUp()
    const [first, second] = [keep('a', performance.now()), keep('b', performance.now())]
    await vi.advanceTimersByTimeAsync(1000)
    expect(asked).toEqual([['a', 'b']])
    expect(first.leftMs()).toBe(leaseMs)
    await first.letGo()
    await vi.advanceTimersByTimeAsync(1000)
    expect(asked).toEqual([['a', 'b'], ['b']])
    await second.letGo()
    expect(vi.getTimerCount()).toBe(0)
  })

  it('aborts the work whose claim was lost, and no other', async () => {
    const { keep, asked, setRenew } = setUp()
    const [lost, held] = [keep('a', performance.now()), keep('b', performance.now())]
    setRenew(async () => ['b'])
    await vi.advanceTimersByTimeAsync(1000)
    expect([lost.lost.aborted, held.lost.aborted]).toEqual([true, false])
    expect(lost.leftMs()).toBeLessThan(0)
    await vi.advanceTimersByTimeAsync(1000)
    expect(asked.at(-1)).toEqual(['b'])
  })

  it('ends the work when its lease ends while Postgres is away', async () => {
    const { keep, failures, setRenew } = setUp()
    const kept = keep('a', performance.now())
    setRenew(() => Promise.reject(new Error('connection refused')))
    await vi.advanceTimersByTimeAsync(leaseMs - 1)
    expect(kept.lost.aborted).toBe(false)
    await vi.advanceTimersByTimeAsync(1)
    expect(kept.lost.aborted).toBe(true)
    expect(failures).toHaveLength(9)
  })

  it('counts a lease from before its claim or renewal was sent', async () => {
    const { keep, setRenew } = setUp()
    const kept = keep('a', performance.now() - 4000)
    expect(kept.leftMs()).toBe(leaseMs - 4000)
    const answer = Promise.withResolvers<readonly string[]>()
    setRenew(() => answer.promise)
    await vi.advanceTimersByTimeAsync(3000)
    answer.resolve(['a'])
    await vi.advanceTimersByTimeAsync(0)
    expect(kept.leftMs()).toBe(leaseMs - 2000)
    await kept.letGo()
  })

  it('releases only after a running renewal, which would postpone a released row', async () => {
    const { keep, setRenew } = setUp()
    const kept = keep('a', performance.now())
    const answer = Promise.withResolvers<readonly string[]>()
    setRenew(() => answer.promise)
    await vi.advanceTimersByTimeAsync(1000)
    const order: string[] = []
    const gone = kept.letGo().then(() => order.push('let go'))
    await vi.advanceTimersByTimeAsync(0)
    order.push('renewed')
    answer.resolve(['a'])
    await gone
    expect(order).toEqual(['renewed', 'let go'])
  })
})
