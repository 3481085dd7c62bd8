import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { withDeadline } from './deadline.ts'
import type { Logger } from './logger.ts'

/** A role whose last round failed, with the number and duration of failures in a row. */
export type FailingRole = { role: string; failures: number; seconds: number; error: unknown }

/** A background role. `done` resolves after the signal aborted and the current round ended or passed its deadline. */
export type Loop = ReturnType<typeof startLoop>

/** The rounds of a background role. */
export type Rounds = Omit<LoopOptions, 'name' | 'logger' | 'signal'>

type LoopOptions = {
  name: string
  /** Runs one round. `more` is true if more work is waiting. */
  runOnce: () => Promise<{ more: boolean }>
  /** The pause after a round without more work, varied by a quarter. A wake ends it. */
  idleMs: number
  /** The shortest pause after a round without more work. Wake-ups gather meanwhile, so one round serves them all. */
  gatherMs?: number
  /** The first round waits until this has ended. */
  after?: Promise<unknown> | undefined
  logger: Logger
  signal: AbortSignal
}

/** After a failure, no wake ends the pause sooner. Under load wakes never stop, and each round would fail again. */
const minRetryMs = 250

/** The deadline of a round, so that a statement lost with its connection does not block the role for ever. */
const roundMs = 30_000

/**
 * Runs one background role until the signal aborts. A round that throws is logged and retried after a growing, jittered
 * pause, or after a wake.
 */
export function startLoop({ name, runOnce, idleMs, gatherMs, after, logger, signal }: LoopOptions) {
  let woken = false
  let pause = new AbortController()

  /** Starts the next round now instead of after the pause. */
  const wake = () => {
    if (woken) return
    woken = true
    pause.abort()
  }
  signal.addEventListener('abort', wake, { once: true })

  const sleep = async (ms: number) => {
    if (woken || signal.aborted) return
    pause = new AbortController()
    await delay(ms, undefined, { signal: pause.signal }).catch(() => {})
  }

  const streak = createStreak(name)

  const run = async () => {
    if (after && !signal.aborted) await Promise.race([after, once(signal, 'abort')])
    while (!signal.aborted) {
      woken = false
      try {
        const { more } = await withDeadline(runOnce(), roundMs, `a round of ${name}`)
        streak.succeeded()
        if (more) continue
        if (gatherMs !== undefined) await delay(gatherMs, undefined, { signal }).catch(() => {})
        await sleep(jittered(idleMs))
      } catch (error) {
        const failures = streak.failed(error)
        const pauseMs = jittered(Math.min(minRetryMs * 2 ** failures, 10_000))
        logger.error({ err: error, loop: name, failures, retry_in_ms: pauseMs }, 'background round failed, will retry')
        woken = false
        await delay(minRetryMs, undefined, { signal }).catch(() => {})
        await sleep(pauseMs - minRetryMs)
      }
    }
  }
  return { wake, failing: streak.failing, done: run() }
}

/** Counts a role's failures in a row. `failing` returns undefined if the last round succeeded. */
export function createStreak(role: string) {
  let failing: { failures: number; sinceMs: number; error: unknown } | undefined
  return {
    failed: (error: unknown): number => {
      failing = { failures: (failing?.failures ?? 0) + 1, sinceMs: failing?.sinceMs ?? performance.now(), error }
      return failing.failures
    },
    succeeded: () => {
      failing = undefined
    },
    failing: (): FailingRole | undefined =>
      failing && {
        role,
        failures: failing.failures,
        seconds: (performance.now() - failing.sinceMs) / 1000,
        error: failing.error,
      },
  }
}

function jittered(ms: number): number {
  return Math.round(ms * (0.75 + Math.random() / 2))
}
