import type http from 'node:http'
import { withDeadline } from '../deadline.ts'
import type { Logger } from '../logger.ts'
import { readMigrationFiles } from '../postgres/drizzle.ts'
import { isMissingTable } from '../postgres/errors.ts'
import { createPool, type Pool } from '../postgres/postgres.ts'
import { explainPostgres } from '../postgres/words.ts'

export type ReadinessOptions = {
  url: string
  schema: string
  folder: string
  logger: Logger
  /** Aborts when the program stops. From then on, the program counts as not ready. */
  signal: AbortSignal
}

/**
 * Checks once a second, on a separate connection, whether Postgres is writable and migrated, and keeps the answer in
 * memory. Requests for it then cost Postgres nothing. Resolves after the first check. Logs each change once with its
 * cause. A failed first check is logged only if the second fails too, because a start that cannot use Postgres reports
 * that itself.
 */
export async function watchReadiness({ url, schema, folder, logger, signal }: ReadinessOptions) {
  const expected = readMigrationFiles({ migrationsFolder: folder }).length
  const stopped = new AbortController()
  let pool: Pool | undefined
  let looks = 0
  let isSaid = false
  let validUntil = 0

  const close = async () => {
    const closing = pool
    pool = undefined
    await closing?.close()
  }

  const look = async (): Promise<Obstacle | undefined> => {
    pool ??= createPool({ url, max: 1, silenceSeconds: 2 })
    // Together with the pause, keeps answers younger than two seconds while Postgres answers.
    const state = await withDeadline(readState(pool, schema), 900, 'asking Postgres')
    if (state?.writable === false) return { level: 'warn', reason: 'Postgres is read-only' }
    const migrations = state?.migrations ?? 0
    // Normal at the first start and during an upgrade.
    return migrations < expected
      ? { level: 'info', says: `not ready yet: the schema has ${migrations} of ${expected} migrations` }
      : undefined
  }

  const lookOnce = async () => {
    const started = performance.now()
    let obstacle: Obstacle | undefined
    let hasFailed = false
    try {
      obstacle = await look()
    } catch (error) {
      hasFailed = true
      const reason = explainPostgres(error)?.words
      obstacle = reason === undefined ? { level: 'warn', err: error } : { level: 'warn', reason }
    }
    if (stopped.signal.aborted) return
    looks += 1
    if (obstacle === undefined) {
      if (validUntil <= 0) logger.info({ schema }, 'ready: Postgres is writable')
      validUntil = started + 2000
      isSaid = false
      return
    }
    // Reconnect, because a session keeps the server and the settings that it started with.
    void close().catch((error: unknown) =>
      logger.debug({ err: error }, 'the connection of the readiness check did not close'),
    )
    validUntil = 0
    if (isSaid || (looks === 1 && hasFailed)) return
    isSaid = true
    const { level, says = 'not ready: Postgres cannot be used', ...cause } = obstacle
    logger[level]({ schema, ...cause }, says)
  }

  let timer: NodeJS.Timeout | undefined
  let looking: Promise<void> = Promise.resolve()
  const goOn = async () => {
    const started = performance.now()
    looking = lookOnce()
    await looking
    if (!stopped.signal.aborted)
      timer = setTimeout(() => void goOn(), Math.max(0, 1000 - (performance.now() - started)))
  }
  await goOn()
  return {
    /** True if Postgres was usable at most 2 s ago and the program is not stopping. Reads memory only. */
    isReady: (): boolean => !signal.aborted && performance.now() < validUntil,
    /** Checks at once, for callers that just changed the state. */
    lookNow: async () => {
      await looking
      await (looking = lookOnce())
    },
    stop: async () => {
      stopped.abort()
      clearTimeout(timer)
      await looking
      await close()
    },
  }
}

type Obstacle = { level: 'info' | 'warn'; says?: string; reason?: string; err?: unknown }

type State = { writable: boolean; migrations: number }

/** Reads Postgres's state. Returns undefined if the table of migrations is missing. */
async function readState({ client }: Pool, schema: string): Promise<State | undefined> {
  try {
    // unsafe() uses no named statement, which a pooler would not find.
    const [row] = await client.unsafe<State[]>(
      `select current_setting('transaction_read_only') = 'off' as writable,
        (select count(*)::int from ${schema}.migrations) as migrations`,
    )
    if (!row) throw new Error('Postgres returned no row for its state')
    return row
  } catch (error) {
    if (isMissingTable(error)) return undefined
    throw error
  }
}

const answers = {
  healthy: healthAnswer(200, 'ok'),
  ready: healthAnswer(200, 'ready'),
  notReady: healthAnswer(503, 'not ready'),
}

function healthAnswer(status: number, word: string) {
  const body = JSON.stringify({ status: word })
  const headers = {
    'content-type': 'application/json; charset=utf-8',
    'content-length': String(Buffer.byteLength(body)),
    'cache-control': 'no-store',
  }
  return { status, headers, body }
}

/** Answers `GET /healthz` and `GET /readyz` before any other handler, so that floods are cheap and unlogged. */
export function withHealth(handler: http.RequestListener, isReady: () => boolean): http.RequestListener {
  return (req, res) => {
    const path = req.method === 'GET' || req.method === 'HEAD' ? req.url?.split('?', 1)[0] : undefined
    if (path === '/healthz') return send(req, res, answers.healthy)
    if (path === '/readyz') return send(req, res, isReady() ? answers.ready : answers.notReady)
    return handler(req, res)
  }
}

function send(
  req: http.IncomingMessage,
  res: http.ServerResponse,
  { status, headers, body }: ReturnType<typeof healthAnswer>,
): void {
  // The body is not read, so the connection must close: its rest would be parsed as a request.
  if (req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0)
    res.shouldKeepAlive = false
  res.writeHead(status, headers).end(req.method === 'HEAD' ? undefined : body)
}
