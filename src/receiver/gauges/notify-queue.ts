import { sql } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'

export type NotifyQueue = {
  /** Share of Postgres's NOTIFY queue in use, 0 to 1. */
  usage: number
  /** False while the queue is too full: landing and the feed then notify no reader. */
  notifies: boolean
  /** The session with the oldest open transaction, while no reader is notified and this role may see all sessions. */
  holder: { pid: number; role: string | null } | null
}

/**
 * Reads the NOTIFY queue, which all databases of the server share. Postgres does not name the session that holds it up.
 * Such a session has a transaction open after LISTEN, so the oldest open transaction is the best guess.
 */
export async function readNotifyQueue(tx: Executor): Promise<NotifyQueue> {
  const rows = await tx.execute<NotifyQueue>(sql`
    select pg_notification_queue_usage() as usage, notifies, holder
    from (select mediadock.may_notify() as notifies offset 0) as guard
    left join lateral (
      select json_build_object('pid', pid, 'role', usename) as holder from pg_stat_activity
      where not notifies and pg_has_role('pg_read_all_stats', 'usage')
        and xact_start is not null and backend_type = 'client backend' and pid <> pg_backend_pid()
      order by xact_start limit 1) as oldest on true`)
  return one(rows, 'reading the NOTIFY queue')
}
