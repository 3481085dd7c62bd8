import type { Logger } from '../../platform/logger.ts'
import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import { createLeaseKeeper, leaseSeconds, type LeaseKeeper } from '../../platform/postgres/lease-keeper.ts'
import { leaseOf } from '../../platform/postgres/lease.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import * as schema from '../domain/schema.ts'

const r = columnsOf(schema.requests, 'r')

/** A request that this process is polling. */
export type HeldPoll = { requestId: string; claims: number }

/** The lease of a poll, for statements with the alias `r`. */
export const pollLease = leaseOf('r', {
  key: { requestId: schema.requests.request_id },
  due_at: schema.requests.next_poll_at,
  claims: schema.requests.poll_claims,
})

type PollKeeperDeps = { db: Database; time: SharedTime; logger: Logger }

/**
 * Renews the polls of a process. A landing that makes a request due at once ends the lease; a renewal does not undo
 * that.
 */
export function createPollKeeper({ db, time, logger }: PollKeeperDeps): LeaseKeeper<HeldPoll> {
  return createLeaseKeeper<HeldPoll>({
    renew: (held) => {
      const now = time()
      return pollLease.renew(db, held, { now, seconds: leaseSeconds, only: sql`${r.next_poll_at} > ${now}` })
    },
    logger,
  })
}
