import { fork } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'

export type LoadOrder = { url: string; connections: number; requests: number }
export type Measured = { perSecond: number; p50Ms: number; p99Ms: number }

export type LoadGenerator = {
  /** Sends that many unique, signed requests; rejects if a single answer is not `200 accepted`. */
  run: (order: LoadOrder) => Promise<Measured>
  stop: () => void
}

export function startLoadGenerator(): LoadGenerator {
  const child = fork(path.join(import.meta.dirname, 'load-process.ts'), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  return {
    run: async (order) => {
      child.send(order)
      const [reply]: { measured?: Measured; error?: string }[] = await once(child, 'message')
      if (reply?.measured === undefined) throw new Error(`the load at ${order.url} failed: ${reply?.error}`)
      return reply.measured
    },
    stop: () => void child.kill('SIGKILL'),
  }
}
