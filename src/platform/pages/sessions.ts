import { createHmac, randomBytes } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { withDeadline } from '../deadline.ts'
import { HttpError } from '../http/http.ts'
import type { Logger } from '../logger.ts'
import { desc, eq, gt, inArray, lte, or } from '../postgres/drizzle.ts'
import type { Database } from '../postgres/postgres.ts'
import type { SessionsTable } from './tables.ts'

/** The length of a shift, so that an on-call engineer signs in once (docs/limits.md). */
export const sessionSeconds = 12 * 3600

/** The facts of a session. The name is the one given at the sign-in and is not verified. */
export type Session = { name: string | undefined; expiresAt: Date }

export type Sessions = ReturnType<typeof createSessions>

export type SessionsDeps = {
  db: Database
  table: SessionsTable
  token: string
  clock: () => Date
  logger: Logger
}

/** When more are opened, the oldest sessions end. */
const maxSessions = 1000

const cookiePattern = /^[\w-]{43}$/

/**
 * Sessions are rows, so that a sign-out ends them on all replicas. A row contains the cookie's HMAC under the token,
 * not the cookie, so a stolen row opens nothing and a new token ends all sessions. All sessions are read together and
 * cached briefly. While Postgres is unreachable, cached sessions stay valid.
 */
export function createSessions({ db, table, token, clock, logger }: SessionsDeps) {
  let known = new Map<string, Session>()
  let begunAt = -Infinity
  let failed = false
  let loading: Promise<void> | undefined
  /** Counts changes of this process. A read that began before a change is out of date. */
  let changes = 0

  const idOf = (cookie: string) => createHmac('sha256', token).update(`session ${cookie}`).digest('hex')
  const run = <T>(statement: Promise<T>) => withDeadline(statement, 1000, 'a statement about sessions')
  const sessionOf = (name: string, expiresAt: Date) => ({ name: name === '' ? undefined : name, expiresAt })

  const load = async () => {
    // Bounds the reads that unknown cookies cause.
    await delay(Math.max(0, begunAt + 200 - performance.now()))
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
      logger.warn({ err: error }, 'sessions cannot be read; known sessions stay valid')
    }
  }
  const refresh = () => (loading ??= load().finally(() => (loading = undefined)))

  return {
    /** Opens a session and returns the value of its cookie. Throws HttpError 503 if it cannot be stored. */
    open: async (name: string): Promise<string> => {
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
    find: async (cookie: string): Promise<Session | undefined> => {
      if (!cookiePattern.test(cookie)) return undefined
      const id = idOf(cookie)
      const calledAt = performance.now()
      // A sign-out on another replica takes effect here after this time.
      if (calledAt - begunAt > 2000) await refresh()
      // Another replica may have opened the session since.
      if (!known.has(id) && begunAt < calledAt) await refresh()
      const session = known.get(id)
      if (!session && failed) unavailable()
      return session !== undefined && session.expiresAt > clock() ? session : undefined
    },
    end: async (cookie: string): Promise<void> => {
      const id = idOf(cookie)
      known.delete(id)
      changes += 1
      await run(db.delete(table).where(eq(table.id, id))).catch(unavailable)
    },
  }
}

function unavailable(cause?: unknown): never {
  const message = 'Postgres cannot be reached, so sessions do not work; use the bearer token'
  throw Object.assign(new HttpError(503, 'unavailable', message, { headers: { 'retry-after': '5' } }), { cause })
}
