import { fork } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import type { Kind } from './signed-requests.ts'

export type LoadOrder = {
  url: string
  connections: number
  requests: number
  kind?: Kind
  /**
   * Requests go out at this rate whether or not those before are answered, and each is timed from when
   * it should have gone. Without it, each connection sends its next one as soon as it has its answer.
   */
  perSecond?: number
  /** Answers the request ids too, with when each should have gone and whether it was acknowledged. */
  withIds?: boolean
  /** The receiver may go away: what is then not answered is only counted. */
  mayBreak?: boolean
}

export type Sent = {
  requestId: string
  /** On the clock of sharedNowMs(). */
  dueAtMs: number
  acknowledged: boolean
}

export type Load = {
  acknowledged: number
  /** Answered otherwise than `200 accepted`. */
  refused: number
  /** Not answered at all. */
  broken: number
  /** The first answer of those, as it came. */
  firstRefusal: string | undefined
  /** Acknowledged before the last request was due, and as a share of all. */
  inTime: number
  /** From the first request to the last answer. */
  seconds: number
  perSecond: number
  p50Ms: number
  p99Ms: number
  bodyBytes: number
  /** CPU of the generator while it ran. */
  cpuSeconds: number
  sent: Sent[]
}

export type LoadGenerator = {
  /** Unique, signed requests; rejects if a single answer is not `200 accepted`, unless `mayBreak` or a rate is given. */
  run: (order: LoadOrder) => Promise<Load>
  stop: () => void
}

/** The load generator is a separate, light process, because it shares the machine with the measured one. */
export function startLoadGenerator(): LoadGenerator {
  const child = fork(path.join(import.meta.dirname, 'load-process.ts'), {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    serialization: 'advanced',
  })
  return {
    run: async (order) => {
      child.send(order)
      const [reply]: { load?: Load; error?: string }[] = await once(child, 'message')
      if (reply?.load === undefined) throw new Error(`the load at ${order.url} failed: ${reply?.error}`)
      return reply.load
    },
    stop: () => void child.kill('SIGKILL'),
  }
}

/** Milliseconds on a monotonic clock that all processes of a machine share. */
export function sharedNowMs(): number {
  return Number(process.hrtime.bigint()) / 1e6
}
