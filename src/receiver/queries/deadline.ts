import type postgres from 'postgres'
import { DeadlineError, withDeadline } from '../../platform/deadline.ts'
import { databaseCodeOf, databaseErrorOf, isConnectionLost } from '../../platform/postgres/errors.ts'
import { clientOf, type Database, databaseOn, type Executor } from '../../platform/postgres/postgres.ts'

/** The longest that a page or a call may keep Postgres busy. */
const queryDeadlineMs = 5000

/** The query was stopped at its deadline; a narrower one may succeed. */
export class QueryTimeoutError extends Error {
  override name = 'QueryTimeoutError'
  code = 'query_timeout' as const
  constructor(options?: ErrorOptions) {
    super(
      `the query took longer than ${queryDeadlineMs / 1000} s and was stopped: narrow it, for example by ` +
        'since and until',
      options,
    )
  }
}

/**
 * Reads within the deadline, or throws QueryTimeoutError. The deadline includes waiting for a connection. Postgres
 * itself ends a statement at the deadline: the setting is local to the transaction, so it also works behind PgBouncer.
 */
export async function readWithin<T>(db: Database, read: (tx: Executor) => Promise<T>): Promise<T> {
  const state = { late: false }
  try {
    // Postgres ends the statement itself. This is the extra time for a server that is frozen or unreachable.
    return await withDeadline(readOnOneConnection(db, read, state), queryDeadlineMs + 250, 'a query')
  } catch (error) {
    state.late = true
    if (error instanceof DeadlineError || databaseCodeOf(error) === '57014')
      throw new QueryTimeoutError({ cause: error })
    throw error
  }
}

/** Reads on a reserved connection, since `begin` of postgres.js needs pipelining (see createPool). */
async function readOnOneConnection<T>(
  db: Database,
  read: (tx: Executor) => Promise<T>,
  state: { late: boolean },
): Promise<T> {
  const connection = await clientOf(db).reserve()
  let usable = true
  const tx = databaseOn(connection, () => {
    // The caller has received its error already, so no further statement runs.
    if (state.late) throw new QueryTimeoutError()
  })
  try {
    await tx.execute(`begin read only; set local statement_timeout = ${queryDeadlineMs}`)
    return await read(tx)
  } catch (error) {
    // postgres.js returns a lost connection to the pool itself.
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
    // The connection is lost, and therefore in the pool already.
  }
}
