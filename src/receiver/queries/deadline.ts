import type postgres from 'postgres'
import { DeadlineError, withDeadline } from '../../platform/deadline.ts'
import { databaseCodeOf, databaseErrorOf, isConnectionLost } from '../../platform/postgres/errors.ts'
import { clientOf, type Database, databaseOn, type Executor } from '../../platform/postgres/postgres.ts'

/** No page and no call may keep Postgres busy for longer than this. */
const queryDeadlineMs = 5000
/** Postgres ends the statement itself; this is for one that is frozen or not there. */
const graceMs = 250

/** The query was stopped at its deadline; a narrower one may succeed. */
export class QueryTimeoutError extends Error {
  override name = 'QueryTimeoutError'
  code = 'query_timeout' as const
  constructor(options?: ErrorOptions) {
    super(
      `the query took longer than ${queryDeadlineMs / 1000} s and was stopped: narrow it, for example by since and until`,
      options,
    )
  }
}

/**
 * Reads within the deadline, or throws QueryTimeoutError. Waiting for a
 * connection counts, and Postgres itself ends a statement that runs into it:
 * the setting lives as long as the transaction, so it passes PgBouncer too.
 */
export async function readWithin<T>(db: Database, read: (tx: Executor) => Promise<T>): Promise<T> {
  const state = { late: false }
  try {
    return await withDeadline(readOnOneConnection(db, read, state), queryDeadlineMs + graceMs, 'a query')
  } catch (error) {
    state.late = true
    if (error instanceof DeadlineError || databaseCodeOf(error) === '57014')
      throw new QueryTimeoutError({ cause: error })
    throw error
  }
}

/** A reserved connection, since `begin` of postgres.js does not work without pipelining (see createPool). */
async function readOnOneConnection<T>(
  db: Database,
  read: (tx: Executor) => Promise<T>,
  state: { late: boolean },
): Promise<T> {
  const connection = await clientOf(db).reserve()
  let usable = true
  const tx = databaseOn(connection, () => {
    // The caller has its answer already: nothing more runs.
    if (state.late) throw new QueryTimeoutError()
  })
  try {
    await tx.execute(`begin read only; set local statement_timeout = ${queryDeadlineMs}`)
    return await read(tx)
  } catch (error) {
    // A lost connection has gone back to the pool by itself, to be opened again.
    usable = !isConnectionLost(error)
    throw databaseErrorOf(error)
  } finally {
    if (usable) await giveBack(connection)
  }
}

async function giveBack(connection: postgres.ReservedSql): Promise<void> {
  try {
    await connection.unsafe('rollback')
    connection.release()
  } catch {
    // Lost, and so back in the pool already.
  }
}
