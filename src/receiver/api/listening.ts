import type { Logger } from '../../platform/logger.ts'
import { createPool, type Pool } from '../../platform/postgres/postgres.ts'

export type ListeningDeps = {
  channel: string
  databaseUrl: string
  logger: Logger
  signal: AbortSignal
  onNotice: (payload: string) => void
}

export type Listening = {
  /** Opens the connection unless it is open. Settles when it listens, or when that has failed. */
  start: () => Promise<void>
  /** Reports a change without a notice. The connection may be dead, so an old one is closed. */
  missed: () => void
}

const relistenAfterMs = 60_000

/** Shares one LISTEN connection in a process. It opens at first use and closes when the process ends. */
export function listenTo({ channel, databaseUrl, logger, signal, onNotice }: ListeningDeps): Listening {
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
    start: async () => {
      if (signal.aborted) return
      listening ??= open()
      await listening.started
    },
    missed: () => {
      if (listening && performance.now() - listening.at > relistenAfterMs) hangUp()
    },
  }
}
