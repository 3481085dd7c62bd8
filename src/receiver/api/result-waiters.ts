import { withDeadline } from '../../platform/deadline.ts'
import { HttpError } from '../../platform/http/http.ts'
import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { terminalOf } from '../queries/results.ts'
import { listenTo } from './listening.ts'

export type ResultWaitersDeps = { db: Database; databaseUrl: string; logger: Logger; signal: AbortSignal }

export type ResultWaiters = {
  /** Calls `onTerminal` once when the request has become terminal, until `leave` is called; throws HttpError 503 when too many wait. */
  join: (requestId: string, onTerminal: () => void) => Promise<{ leave: () => void }>
}

const maxWaiters = 1000
/** LISTEN does not pass PgBouncer in transaction mode, and a connection can be lost: what was missed is found by this. */
const lookMs = 1000
const listenWithinMs = 1000

/**
 * Everyone who waits for results in this process, on one LISTEN connection that
 * is opened for the first of them and closed at the end of the process.
 */
export function createResultWaiters({ db, databaseUrl, logger, signal }: ResultWaitersDeps): ResultWaiters {
  const waiting = new Map<string, Set<() => void>>()
  let count = 0
  let timer: NodeJS.Timeout | undefined
  let looking = false

  const wake = (requestId: string) => waiting.get(requestId)?.forEach((onTerminal) => onTerminal())

  const listening = listenTo({
    channel: 'mediadock_results',
    databaseUrl,
    logger,
    signal,
    onNotice: (payload) => wake(requestIdOf(payload)),
  })
  signal.addEventListener('abort', () => clearInterval(timer))

  const look = async () => {
    if (looking) return
    looking = true
    try {
      const missed = await terminalOf(db, [...waiting.keys()])
      missed.forEach(wake)
      if (missed.length > 0) listening.missed()
    } catch (error) {
      logger.warn({ err: error }, 'looking for results failed, the next round tries again')
    } finally {
      looking = false
    }
  }

  const leave = (requestId: string, onTerminal: () => void) => {
    const group = waiting.get(requestId)
    if (!group?.delete(onTerminal)) return
    count -= 1
    if (group.size === 0) waiting.delete(requestId)
    if (count > 0) return
    clearInterval(timer)
    timer = undefined
  }

  return {
    join: async (requestId, onTerminal) => {
      if (count >= maxWaiters)
        throw new HttpError(503, 'too_many_waiting', `${maxWaiters} calls wait for results already`, {
          headers: { 'retry-after': '1' },
        })
      count += 1
      const group = waiting.get(requestId) ?? new Set()
      waiting.set(requestId, group.add(onTerminal))
      timer ??= setInterval(() => void look(), lookMs)
      await withDeadline(listening.start(), listenWithinMs, 'LISTEN').catch(() => {})
      return { leave: () => leave(requestId, onTerminal) }
    },
  }
}

function requestIdOf(payload: string): string {
  const change: unknown = JSON.parse(payload)
  return typeof change === 'object' && change !== null && 'request_id' in change ? String(change.request_id) : ''
}
