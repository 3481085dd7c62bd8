import { DeadlineError, withDeadline } from '../../platform/deadline.ts'
import { databaseCodeOf } from '../../platform/postgres/errors.ts'
import { type Database, type Executor, onOneConnection } from '../../platform/postgres/postgres.ts'

/**
 * The longest time that one read of a page or a call may take (docs/limits.md), since a few slow searches can hold all
 * connections of reads.
 */
const queryDeadlineMs = 5000

/**
 * The query was stopped at its deadline. If Postgres stopped it, a narrower one may succeed. If Postgres gave no answer,
 * its `cause` is a DeadlineError.
 */
export class QueryTimeoutError extends Error {
  override name = 'QueryTimeoutError'
  code = 'query_timeout' as const
  constructor(options?: ErrorOptions) {
    const limit = `${queryDeadlineMs / 1000} s`
    super(
      options?.cause instanceof DeadlineError
        ? `Postgres gave no answer within ${limit}: check that it is neither frozen nor overloaded`
        : `the query took longer than ${limit} and was stopped: narrow it, for example by since and until`,
      options,
    )
  }
}

/**
 * Waits for a write of one call no longer than for a read, or throws DeadlineError. The write may still be made, so it
 * must be one that the caller can repeat.
 */
export function writeWithin<T>(writing: Promise<T>): Promise<T> {
  return withDeadline(writing, queryDeadlineMs, 'a write')
}

/**
 * Reads within the deadline, or throws QueryTimeoutError. The deadline includes waiting for a connection. Postgres
 * itself ends a statement at the deadline: the setting is local to the transaction, so it also works behind PgBouncer.
 */
export async function readWithin<T>(db: Database, read: (tx: Executor) => Promise<T>): Promise<T> {
  let isLate = false
  const reading = onOneConnection(
    db,
    async (tx) => {
      await tx.execute(`begin read only; set local statement_timeout = ${queryDeadlineMs}`)
      return read(tx)
    },
    () => {
      // The caller has received its error already, so no further statement runs.
      if (isLate) throw new QueryTimeoutError()
    },
  )
  try {
    // Postgres ends the statement itself. This is the extra time for a server that is frozen or unreachable.
    return await withDeadline(reading, queryDeadlineMs + 250, 'a query')
  } catch (error) {
    isLate = true
    if (error instanceof DeadlineError || databaseCodeOf(error) === '57014')
      throw new QueryTimeoutError({ cause: error })
    throw error
  }
}
