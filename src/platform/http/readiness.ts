import type http from 'node:http'
import { withDeadline } from '../deadline.ts'
import type { Logger } from '../logger.ts'
import { readMigrationFiles } from '../postgres/drizzle.ts'
import { isMissingTable } from '../postgres/errors.ts'
import { createPool, type Pool } from '../postgres/postgres.ts'
import { explainPostgres } from '../postgres/words.ts'

const everyMs = 1000
/** With the pause, an answer is never older than `validMs` while Postgres answers. */
const deadlineMs = 900
const validMs = 2000

export type Readiness = {
  /** From memory: whether Postgres could be written to, and was migrated, at most 2 s ago, and we are not stopping. */
  isReady: () => boolean
  /** Looks at once, for who has just changed what is looked at. */
  lookNow: () => Promise<void>
  /** Settles when the connection is closed. */
  stop: () => Promise<void>
}

export type ReadinessOptions = {
  url: string
  /** Whose migrations have to be in. */
  schema: string
  folder: string
  logger: Logger
  /** We are stopping: not ready from then on. */
  signal: AbortSignal
}

/**
 * Looks once a second, on a connection of its own, whether Postgres takes
 * writes and has every migration, and keeps the answer: whoever asks costs
 * Postgres nothing. Settles after the first look. Each change is logged once,
 * with its cause. A first look that fails is logged only if the second fails too:
 * a start that cannot use Postgres ends meanwhile, with a line of its own.
 */
export async function watchReadiness({ url, schema, folder, logger, signal }: ReadinessOptions): Promise<Readiness> {
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

  /** Why not, or undefined when all is well. */
  const look = async (): Promise<Obstacle | undefined> => {
    pool ??= createPool({ url, max: 1, silenceSeconds: 2 })
    const state = await withDeadline(readState(pool, schema), deadlineMs, 'asking Postgres')
    if (state?.writable === false) return { level: 'warn', reason: 'Postgres is read-only' }
    const migrations = state?.migrations ?? 0
    // Every first start is like that.
    return migrations < expected
      ? { level: 'info', reason: `${migrations} of ${expected} migrations are in` }
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
      if (validUntil <= 0) logger.info({ schema }, 'ready: Postgres can be written to')
      validUntil = started + validMs
      isSaid = false
      return
    }
    // A session keeps what it was opened with: a new one sees a failover, or a setting that was changed.
    void close().catch((error: unknown) =>
      logger.debug({ err: error }, 'the connection of the readiness check did not close'),
    )
    validUntil = 0
    if (isSaid || (looks === 1 && hasFailed)) return
    isSaid = true
    const { level, ...cause } = obstacle
    logger[level]({ schema, ...cause }, 'not ready: Postgres cannot be used')
  }

  let timer: NodeJS.Timeout | undefined
  let looking: Promise<void> = Promise.resolve()
  const goOn = async () => {
    const started = performance.now()
    looking = lookOnce()
    await looking
    if (!stopped.signal.aborted)
      timer = setTimeout(() => void goOn(), Math.max(0, everyMs - (performance.now() - started)))
  }
  await goOn()
  return {
    isReady: () => !signal.aborted && performance.now() < validUntil,
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

/** Why we are not ready. */
type Obstacle = { level: 'info' | 'warn'; reason: string } | { level: 'warn'; err: unknown }

type State = { writable: boolean; migrations: number }

/** Undefined while there is no table of migrations: of a new database, or of one that is not ours. */
async function readState({ client }: Pool, schema: string): Promise<State | undefined> {
  try {
    // By unsafe(), which names no statement: a pooler would not know it.
    const [row] = await client.unsafe<State[]>(
      `select current_setting('transaction_read_only') = 'off' as writable, (select count(*)::int from ${schema}.migrations) as migrations`,
    )
    if (!row) throw new Error('Postgres answered the question for its state with no row')
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

/**
 * `GET /healthz` (the process lives) and `GET /readyz`, answered before anything
 * else sees them: a flood of them costs next to nothing and leaves no line in the log.
 */
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
  // Nobody reads a body here: what is still to come of one would be waited for, and answered again.
  if (req.headers['transfer-encoding'] !== undefined || Number(req.headers['content-length'] ?? 0) > 0)
    res.shouldKeepAlive = false
  res.writeHead(status, headers).end(req.method === 'HEAD' ? undefined : body)
}
