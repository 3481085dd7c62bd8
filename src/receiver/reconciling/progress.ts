import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import { later } from '../../platform/postgres/time.ts'
import * as schema from '../domain/schema.ts'
import type { ClaimDeps } from './poll-claims.ts'

const requests = columnsOf(schema.requests)

/** A shorter interval would let one request use up the calls for extra polls. */
const progressEverySeconds = 3

/**
 * Asks for an extra poll of each open request that a caller of this process waits for, to update its progress. Like
 * every extra poll, it takes a call from the tenth reserved for them.
 */
export async function askForProgress({ db, time, awaited }: ClaimDeps): Promise<void> {
  const ids = awaited?.() ?? []
  if (ids.length === 0) return
  const now = time()
  await db.execute(sql`
    update mediadock.requests set ${requests.doubt_poll_at} = ${now}
    where ${requests.request_id} = any(array(
      select ${requests.request_id} from mediadock.requests
      where ${requests.request_id} = any(${sql.param([...ids])}::uuid[]) and ${requests.landed_at} is null
        and ${requests.doubt_poll_at} is null
        and coalesce(${requests.polled_at}, ${requests.tracked_at}) <= ${later(now, -progressEverySeconds)}
      for update skip locked))`)
}
