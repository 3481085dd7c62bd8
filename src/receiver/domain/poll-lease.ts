import { leaseOf } from '../../platform/postgres/lease.ts'
import { requests } from './schema.ts'

/**
 * The lease of a poll, for statements with the alias `r`. A request has two times for polls. A claim leaves both as
 * they are, so the poll of a process that died is made again. The end of a poll sets both:
 *
 * - `next_poll_at`: its next poll by schedule. Null if there is none, infinity if the provider has lost the request.
 * - `doubt_poll_at`: its extra poll, asked for by a delivery that contradicts the row or is of another environment, also
 *   by one that was parked before, by a hint, and by a caller that waits for progress.
 *
 * Whoever lands a result, or makes a request due at once because something new is known about it, also ends the claim
 * of its poll (`giveBack`): a poll that began earlier would otherwise overwrite the new schedule.
 */
export const pollLease = leaseOf('r', {
  key: { request_id: requests.request_id },
  due_at: requests.poll_leased_until,
  claims: requests.poll_claims,
})
