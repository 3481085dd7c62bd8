import { sql } from './drizzle.ts'

/**
 * A CTE for a statement that must be durable when it returns: on disk, and on the synchronous standby if there is one.
 * The statement must read from `durable`. The server warns if a commit did not wait for the standby. The CTE enables
 * warnings itself, because a pooler may drop the connection's setting.
 */
export const durable = sql`durable as materialized (
  select set_config('synchronous_commit', 'on', true), set_config('client_min_messages', 'warning', true))`
