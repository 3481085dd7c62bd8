import { sql } from './drizzle.ts'

/**
 * A CTE, `durable`, for a statement whose commit must be on disk, and on a synchronous standby where there is one,
 * before anybody relies on it: read from it. The driver learns by a warning that a commit did not wait for the standby;
 * a pooler may keep the connection's own wish for warnings from the server.
 */
export const durable = sql`durable as materialized (
  select set_config('synchronous_commit', 'on', true), set_config('client_min_messages', 'warning', true))`
