import net from 'node:net'
import type { SQL } from 'drizzle-orm'
import { PgDialect } from 'drizzle-orm/pg-core'
import { drizzle, type PostgresJsDatabase } from 'drizzle-orm/postgres-js'
import postgres from 'postgres'

export type Database = PostgresJsDatabase

export type Pool = {
  db: Database
  client: postgres.Sql
  close: () => Promise<void>
}

export type PoolOptions = {
  url: string
  max: number
  /** Seconds that a server may leave a statement without one byte of answer. */
  silenceSeconds?: number
}

/**
 * A pool over postgres.js.
 *
 * - Named statements would break behind PgBouncer in transaction mode: only what asks
 *   for one gets it, where it can (prepared.ts). What drizzle runs does not ask.
 * - `max_pipeline: 0`: a statement waits for a free connection, never behind a slow one.
 * - postgres.js has no deadline of its own, so a frozen server would hold every
 *   connection for ever; the sockets are watched and cut (see `watchSilence`).
 */
export function createPool({ url, max, silenceSeconds = 15 }: PoolOptions): Pool {
  const watch = watchSilence(silenceSeconds)
  outliveLostTypes()
  const options = {
    max,
    prepare: true,
    max_pipeline: 0,
    connect_timeout: 5,
    // Postgres is back as soon as it is back: no pause of up to 20 s, the default.
    backoff: () => 0.1 + Math.random() * 0.4,
    onnotice: () => {},
    connection: { application_name: 'mediadock' },
    socket: (resolved: postgres.ParsedOptions) => watch.open(resolved),
  }
  const client = postgres(url, options)
  return {
    db: drizzle(client),
    client,
    close: async () => {
      await client.end({ timeout: 5 })
      watch.stop()
    },
  }
}

let outlives = false

/**
 * A new connection of postgres.js first asks for the array types, and drops that
 * promise: a server that goes away at this moment would end the whole process by
 * an unhandled rejection. The statement that opened the connection fails, or is
 * tried again, by itself. Everything else that is unhandled stays fatal.
 */
function outliveLostTypes(): void {
  if (outlives) return
  outlives = true
  process.on('unhandledRejection', (reason) => {
    const isLostTypes = reason instanceof Error && 'query' in reason && String(reason.query).includes('b.typarray')
    if (!isLostTypes) throw reason
  })
}

/**
 * Closes without ever saying that it was for an error. At the error postgres.js
 * fails what the connection carries, and only at a close without one what it
 * was given since: a statement that came in between would never settle. (Behind
 * TLS it still does not; whoever waits has a deadline.)
 */
export class PostgresSocket extends net.Socket {
  override emit(event: string | symbol, ...args: unknown[]): boolean {
    return super.emit(event as string, ...(event === 'close' ? [false] : args))
  }
}

type Watched = { socket: net.Socket; moved: number; movedAt: number; answeredAtWritten: number }

/** ReadyForQuery ends every answer: this and one byte for the state of the transaction. */
const readyForQuery = Buffer.from([0x5a, 0, 0, 0, 5])

/**
 * Destroys a socket that has had something to answer for `seconds` and on which
 * nothing moved. Behind TLS the end of an answer cannot be seen: there an idle
 * connection is cut as well, and opened again when it is needed.
 */
function watchSilence(seconds: number) {
  const sockets = new Set<Watched>()
  const check = () => {
    const now = performance.now()
    for (const watched of sockets) {
      const { bytesRead, bytesWritten, destroyed } = watched.socket
      if (destroyed) {
        sockets.delete(watched)
      } else if (bytesRead + bytesWritten !== watched.moved) {
        watched.moved = bytesRead + bytesWritten
        watched.movedAt = now
      } else if (bytesWritten !== watched.answeredAtWritten && now - watched.movedAt > seconds * 1000) {
        watched.socket.destroy(new Error(`postgres sent nothing for ${seconds} s, connection cut`))
      }
    }
  }
  const timer = setInterval(check, 1000).unref()
  let turn = 0

  const open = ({ host, port, path }: postgres.ParsedOptions): net.Socket => {
    const at = turn++ % host.length
    // Written to before it is connected, which node queues: errors then reach postgres.js as events.
    const socket = new PostgresSocket().connect(path ? { path } : { port: port[at] ?? 5432, host: host[at] ?? 'localhost' })
    const watched = { socket, moved: 0, movedAt: performance.now(), answeredAtWritten: 0 }
    sockets.add(watched)
    let tail = Buffer.alloc(0)
    socket.on('data', (chunk: Buffer) => {
      tail = Buffer.concat([tail, chunk.subarray(-6)]).subarray(-6)
      if (tail.subarray(0, 5).equals(readyForQuery)) watched.answeredAtWritten = socket.bytesWritten
    })
    return socket
  }
  return { open, stop: () => clearInterval(timer) }
}

/** The driver's own client of a database that createPool has made. */
export function clientOf(db: Database): postgres.Sql {
  if (!hasClient(db)) throw new TypeError('this database was not made by createPool')
  return db.$client
}

function hasClient(db: Database): db is Database & { $client: postgres.Sql } {
  return '$client' in db
}

const dialect = new PgDialect()

type Scalar = string | number | boolean | Uint8Array | null

/** A statement as the driver takes it, for what drizzle's own `execute` has no option for. */
export function statementOf(query: SQL): { text: string; params: (Scalar | Scalar[])[] } {
  const { sql: text, params } = dialect.sqlToQuery(query)
  return { text, params: params.map((value) => (Array.isArray(value) ? value.map(toScalar) : toScalar(value))) }
}

function toScalar(value: unknown): Scalar {
  if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' || value === null || value instanceof Uint8Array) return value
  throw new TypeError(`a statement takes no parameter of type ${typeof value}`)
}

export class DeadlineError extends Error {
  override name = 'DeadlineError'
  code = 'deadline_exceeded' as const
}

/** Rejects with a DeadlineError when `work` takes longer than `ms`; the work itself goes on. */
export async function withDeadline<T>(work: Promise<T>, ms: number, what: string): Promise<T> {
  const { promise: expired, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new DeadlineError(`${what} took longer than ${ms} ms`)), ms)
  try {
    return await Promise.race([work, expired])
  } finally {
    clearTimeout(timer)
  }
}
