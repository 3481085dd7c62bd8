import { sql } from './drizzle.ts'

/**
 * A CTE for a statement that must be durable when it returns: on disk, and on the synchronous standby if there is one.
 * The statement must read from `durable`. The server warns if a commit did not wait for the standby. The CTE enables
 * warnings itself, because a pooler may drop the connection's setting.
 */
export const durable = sql`durable as materialized (
  select set_config('synchronous_commit', 'on', true), set_config('client_min_messages', 'warning', true))`

/**
 * SQL to select: makes a statement write although it changes no row, so its commit waits like any durable one. Rows
 * that a statement only reads may be missing on the standby, since a server that crashed while it waited for its
 * standby shows them after its restart. The message follows them in the log of the server, so a commit that waits for
 * the message also waits for them.
 */
export const forcedWrite = sql`pg_logical_emit_message(true, 'mediadock', '')`

/** SQL condition, always true: the commit of the statement does not wait for the disk. A crash may lose what it wrote. */
export const notDurable = sql`set_config('synchronous_commit', 'off', true) = 'off'`
