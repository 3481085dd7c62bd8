import { createHmac, randomBytes } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { withDeadline } from '../deadline.ts'
import { HttpError } from '../http/http.ts'
import type { Logger } from '../logger.ts'
import { desc, eq, gt, inArray, lte, or } from '../postgres/drizzle.ts'
import type { Database } from '../postgres/postgres.ts'
import type { SessionsTable } from './tables.ts'

export const sessionSeconds = 12 * 3600

/** The facts of a session. The name is the one given at the sign-in and is not verified. */
export type Session = { name: string | undefined; expiresAt: Date }

export type Sessions = {
  /** Answers what the cookie holds; throws HttpError 503 where it cannot be kept. */
  open: (name: string) => Promise<string>
  find: (cookie: string) => Promise<Session | undefined>
  end: (cookie: string) => Promise<void>
}

export type SessionsDeps = {
  db: Database
  table: SessionsTable
  token: string
  clock: () => Date
  logger: Logger
}

/** Where more are opened, the oldest end. */
const maxSessions = 1000
/** A sign-out is known to all replicas after this. */
const freshMs = 2000
/** However many cookies nobody knows: Postgres is read no more often. */
const betweenLoadsMs = 200
const deadlineMs = 1000

const cookiePattern = /^[\w-]{43}$/

/**
 * Sessions as rows, so that a sign-out ends them everywhere. A row has no more
 * than the cookie's HMAC under the token: it opens nothing by itself, and none
 * outlives its token. All of them are read at once and kept for a moment; while
 * Postgres is away, those that are known stay.
 */
export function createSessions({ db, table, token, clock, logger }: SessionsDeps): Sessions {
  let known = new Map<string, Session>()
  let begunAt = -Infinity
  let failed = false
  let loading: Promise<void> | undefined
  /** Moves with every change of our own: what was read before it is out of date. */
  let changes = 0

  const idOf = (cookie: string) => createHmac('sha256', token).update(`session ${cookie}`).digest('hex')
  const run = <T>(statement: Promise<T>) => withDeadline(statement, deadlineMs, 'a statement about sessions')
  const sessionOf = (name: string, expiresAt: Date) => ({ name: name === '' ? undefined : name, expiresAt })

  const load = async () => {
    await delay(Math.max(0, begunAt + betweenLoadsMs - performance.now()))
    begunAt = performance.now()
    const before = changes
    try {
      const rows = await run(
        db
          .select()
          .from(table)
          .where(gt(table.expires_at, clock().toISOString()))
          .orderBy(desc(table.expires_at))
          .limit(maxSessions),
      )
      failed = false
      if (before === changes)
        known = new Map(rows.map(({ id, name, expires_at }) => [id, sessionOf(name, new Date(expires_at))]))
      else begunAt = -Infinity
    } catch (error) {
      failed = true
      logger.warn({ err: error }, 'sessions cannot be read, those that are known stay')
    }
  }
  const refresh = () => (loading ??= load().finally(() => (loading = undefined)))

  return {
    open: async (name) => {
      const cookie = randomBytes(32).toString('base64url')
      const expiresAt = new Date(clock().getTime() + sessionSeconds * 1000)
      const surplus = db
        .select({ id: table.id })
        .from(table)
        .orderBy(desc(table.expires_at), table.id)
        .offset(maxSessions - 1)
      const gone = or(lte(table.expires_at, clock().toISOString()), inArray(table.id, surplus))
      await run(db.delete(table).where(gone)).catch(unavailable)
      const session = { id: idOf(cookie), name, expires_at: expiresAt.toISOString() }
      await run(db.insert(table).values(session)).catch(unavailable)
      known.set(session.id, sessionOf(name, expiresAt))
      changes += 1
      return cookie
    },
    find: async (cookie) => {
      if (!cookiePattern.test(cookie)) return undefined
      const id = idOf(cookie)
      const calledAt = performance.now()
      if (calledAt - begunAt > freshMs) await refresh()
      // It may have been opened on another replica since.
      if (!known.has(id) && begunAt < calledAt) await refresh()
      const session = known.get(id)
      if (!session && failed) throw unreachable()
      return session !== undefined && session.expiresAt > clock() ? session : undefined
    },
    end: async (cookie) => {
      const id = idOf(cookie)
      known.delete(id)
      changes += 1
      await run(db.delete(table).where(eq(table.id, id))).catch(unavailable)
    },
  }
}

function unavailable(error: unknown): never {
  throw unreachable(error)
}

function unreachable(cause?: unknown): HttpError {
  const error = new HttpError(
    503,
    'unavailable',
    'sessions cannot be kept while Postgres cannot be reached; the bearer token works',
    {
      headers: { 'retry-after': '5' },
    },
  )
  error.cause = cause
  return error
}
