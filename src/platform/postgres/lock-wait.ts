import { sql } from './drizzle.ts'

/** Much longer than a landing takes. Others wait for the statement, so it does not wait long. */
export const shortLockWaitMs = 500

/** SQL: bounds how long the rest of its statement waits for each row that another transaction locks. 0: no bound. */
export const lockWait = (waitMs: number = shortLockWaitMs) => sql`
      select set_config('lock_timeout', ${`${waitMs}ms`}, true)`
