import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { createGather } from '../../src/platform/gather.ts'

describe('rows that gather for a batch', () => {
  beforeEach(() => {
    vi.useFakeTimers()
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  /** Rows arrive this far apart; with `closed`, the next arrives only once the last is in a batch. */
  function batchesOf({ everyMs, arrivals, closed = false }: { everyMs: number; arrivals: number; closed?: boolean }) {
    const batches: number[] = []
    let waiting = 0
    const pump = () => {
      if (waiting === 0 || !mayBegin(waiting)) return
      batches.push(waiting)
      waiting = 0
    }
    const mayBegin = createGather({ ms: 10, enoughRows: 64, wake: pump })
    for (let n = 0; n < arrivals; n += 1) {
      waiting += 1
      pump()
      vi.advanceTimersByTime(everyMs)
      while (closed && waiting > 0) vi.advanceTimersByTime(1)
    }
    vi.advanceTimersByTime(20)
    expect(waiting).toBe(0)
    return batches
  }

  it('never wait if each comes alone', () => {
    expect(batchesOf({ everyMs: 10, arrivals: 50 })).toEqual(Array.from({ length: 50 }, () => 1))
  })

  it('wait for closely following rows, once such rows have come', () => {
    const batches = batchesOf({ everyMs: 1, arrivals: 500 })
    expect(batches.at(-2)).toBe(10)
    expect(batches.length).toBeLessThan(100)
  })

  it('wait in one of 16 tries if a sender waits for its answer', () => {
    vi.setSystemTime(0)
    const started = performance.now()
    batchesOf({ everyMs: 1, arrivals: 160, closed: true })
    // 160 ms of its own, ten waits of 9 ms, and the end.
    expect(performance.now() - started).toBeLessThan(300)
  })

  it('start at once when there are enough', () => {
    const mayBegin = createGather({ ms: 10, enoughRows: 64, wake: () => {} })
    expect([mayBegin(64), mayBegin(64), mayBegin(64)]).toEqual([true, true, true])
  })
})
