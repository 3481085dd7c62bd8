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
  /** Opens the connection where none is open; settles once it listens, or could not. */
  start: () => Promise<void>
  /** Something came that was not notified: the connection may be dead without any sign of it. */
  missed: () => void
}

const relistenAfterMs = 60_000

/** One LISTEN connection for all of a process, opened when it is needed first and closed at the end of the process. */
export function listenTo({ channel, databaseUrl, logger, signal, onNotice }: ListeningDeps): Listening {
  let listening: { pool: Pool; started: Promise<void>; at: number } | undefined

  const open = () => {
    const pool = createPool({ url: databaseUrl, max: 1 })
    const started = pool.client.listen(channel, onNotice).then(
      () => {},
      (error: unknown) => logger.warn({ err: error, channel }, 'LISTEN failed, what is new is looked for every second'),
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
