import type { Logger } from '../../platform/logger.ts'
import { createPool, type Pool } from '../../platform/postgres/postgres.ts'

export type ListeningDeps = {
  channel: string
  databaseUrl: string
  logger: Logger
  signal: AbortSignal
  onNotice: (payload: string) => void
}

/**
 * Creates the one connection on which a process listens to a channel. It opens at first use and closes when `signal`
 * aborts. If it cannot listen, callers find changes by their own polls.
 */
export function listenTo({ channel, databaseUrl, logger, signal, onNotice }: ListeningDeps) {
  let listening: { pool: Pool; started: Promise<void>; at: number } | undefined

  const open = () => {
    const pool = createPool({ url: databaseUrl, max: 1 })
    const started = pool.client.listen(channel, onNotice).then(
      () => {},
      (error: unknown) => logger.warn({ err: error, channel }, 'LISTEN failed, polling for changes every second'),
    )
    return { pool, started, at: performance.now() }
  }
  const hangUp = () => {
    void listening?.pool.close().catch(() => {})
    listening = undefined
  }
  signal.addEventListener('abort', hangUp)

  return {
    /** Opens the connection unless it is open. Settles when it listens, or when that has failed. */
    start: async () => {
      if (signal.aborted) return
      listening ??= open()
      await listening.started
    },
    /**
     * To be called when a poll finds a change that no notice announced. The connection may be dead: one older than a
     * minute is closed, and the next start() opens another.
     */
    missed: () => {
      if (listening && performance.now() - listening.at > 60_000) hangUp()
    },
  }
}
