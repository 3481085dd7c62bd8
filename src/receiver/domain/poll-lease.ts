import { leaseOf } from '../../platform/postgres/lease.ts'
import { requests } from './schema.ts'

/**
 * The lease of a poll, for statements with the alias `r`. A request has two times for polls. A claim leaves both as
 * they are, so the poll of a process that died is made again:
 *
 * - `next_poll_at`: its next poll by schedule. Null if there is none, infinity if the provider has lost the request. The
 *   end of a poll sets it; the end of an extra poll only for a request that has landed.
 * - `doubt_poll_at`: its extra poll, asked for by a delivery that contradicts the row or is of another environment, also
 *   by one that was parked before, by a hint, and by a caller that waits for progress. The end of any poll clears it,
 *   unless it was asked for during that poll.
 *
 * A landing, a hint that the job may have ended, and tracking with another key also end the claim of a poll that is under
 * way (`giveBack`): its answer may be older than what they know, and would overwrite the schedule that they set.
 */
export const pollLease = leaseOf('r', {
  key: { request_id: requests.request_id },
  due_at: requests.poll_leased_until,
  claims: requests.poll_claims,
})
