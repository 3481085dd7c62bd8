import { once } from 'node:events'
import { setTimeout as delay } from 'node:timers/promises'
import { withDeadline } from './deadline.ts'
import type { Logger } from './logger.ts'

/** What a role has failed at since its last round that went well. */
export type FailingRole = { role: string; failures: number; seconds: number; error: unknown }

export type Loop = {
  /** How often in a row its last rounds have failed; undefined where the last one went well. */
  failing: () => FailingRole | undefined
  /** Runs the next round now instead of at the end of the pause. */
  wake: () => void
  /** Settles when the signal has aborted and the round in progress has ended. */
  done: Promise<void>
}

export type LoopOptions = {
  name: string
  /** One round. Answers whether there is more to do at once. */
  runOnce: () => Promise<{ more: boolean }>
  /** Pause between rounds when nobody wakes the loop. */
  idleMs: number
  /**
   * A load that stays has one round in this time, unless there is more to do: what wakes it gathers meanwhile.
   * The first `burst` rounds after a pause begin at once.
   */
  gather?: { ms: number; burst: number }
  /** Far beyond any round: a statement that is lost with its connection must not end a role for good. */
  roundDeadlineMs?: number
  /** No round before this has settled. */
  after?: Promise<unknown> | undefined
  logger: Logger
  signal: AbortSignal
}

const failurePauseMaxMs = 10_000

/**
 * Drives one background role until the signal aborts. A round that throws is
 * logged and tried again after a jittered, growing pause: the work is in
 * Postgres, so nothing is lost by waiting.
 */
export function startLoop({
  name,
  runOnce,
  idleMs,
  gather,
  roundDeadlineMs = 30_000,
  after,
  logger,
  signal,
}: LoopOptions): Loop {
  let woken = false
  let pause = new AbortController()

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

  let burst = gather?.burst ?? 0
  let refilledAt = performance.now()
  const gathered = async () => {
    if (!gather) return
    const now = performance.now()
    burst = Math.min(gather.burst, burst + (now - refilledAt) / gather.ms) - 1
    refilledAt = now
    if (burst < 0) await delay(-burst * gather.ms, undefined, { signal }).catch(() => {})
  }

  const streak = createStreak(name)

  const run = async () => {
    if (after) await Promise.race([after, aborted(signal)])
    while (!signal.aborted) {
      woken = false
      try {
        const { more } = await withDeadline(runOnce(), roundDeadlineMs, `a round of ${name}`)
        streak.succeeded()
        if (more) continue
        await gathered()
        await sleep(jittered(idleMs))
      } catch (error) {
        const failures = streak.failed(error)
        const pauseMs = jittered(Math.min(250 * 2 ** failures, failurePauseMaxMs))
        logger.error({ err: error, loop: name, failures, retry_in_ms: pauseMs }, 'background round failed, will retry')
        woken = false
        await sleep(pauseMs)
      }
    }
  }
  return { wake, failing: streak.failing, done: run() }
}

/** Counts how often a role has failed in a row. */
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

function aborted(signal: AbortSignal): Promise<unknown> {
  return signal.aborted ? Promise.resolve() : once(signal, 'abort')
}

function jittered(ms: number): number {
  return Math.round(ms * (0.75 + Math.random() / 2))
}
