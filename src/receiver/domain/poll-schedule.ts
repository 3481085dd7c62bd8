import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { leaseOf } from '../../platform/postgres/lease.ts'
import { nextExtraPoll } from './poll-rhythm.ts'
import { requests } from './schema.ts'

/*
 * The schedule of a request's polls. A request has two times for polls, and a lease for the poll that is under way:
 *
 *   next_poll_at        its next poll by schedule. Null if there is none, infinity if the provider has lost the request
 *   doubt_poll_at       its extra poll, for which a key has few calls. Null if nothing asks for one
 *   poll_leased_until   the end of the lease. `poll_claims` fences it: see postgres/lease.ts
 *
 * Every change of them is in this file, but for two: a new row is inserted with its first time, and the trigger
 * `join_tracked` acts for services that insert requests by SQL. If a known request gets its first key so, or one in
 * place of that of a webhook, the poll under way ends. A landed request whose key changed so is due now. `-`: stays as it is.
 *
 *   event                                           next_poll_at              doubt_poll_at             lease
 *   a poll is claimed when it is due                -                         -                         begins
 *   a poll is claimed early: its outage is over     now                       -                         begins
 *   it ended without a result                       later, in its rhythm      null, unless asked anew   ends
 *   the same, an extra poll of an open request      -                         null, unless asked anew   ends
 *   it ended without an answer                      -, or now if it had none  -                         ends
 *   it ended with the result that is known          null                      null                      ends
 *   a result lands                                  null; now if incomplete   null                      ends
 *   a webhook lands                                 by the ruling             -                         ends
 *   the same, while one is parked for its key       by the ruling             asked for                 ends
 *   a webhook contradicts it, or is parked          -                         asked for                 -
 *   a hint that an open job may have ended          now                       -                         ends
 *   the same, of a landed, unconfirmed request      -                         asked for                 ends
 *   a webhook without a signature names it          -                         asked for                 -
 *   a caller waits for its progress                 -                         now                       -
 *   it is tracked again                             now if rekeyed            -                         ends
 *   its incomplete result is replayed               now                       -                         -
 *
 * The times of a claimed poll stay due, so the poll of a process that died is made again. Where an event ends the lease
 * of a poll that is under way, that poll no longer changes the schedule, since its answer may be older than the event.
 * A result that it brings still lands.
 */

const { isDue: isFree, ...lease } = leaseOf('r', {
  key: { request_id: requests.request_id },
  due_at: requests.poll_leased_until,
  claims: requests.poll_claims,
})

/** The lease of a poll. Statements use the alias `r` for requests. `isFree`: no poll of the row is under way. */
export const pollLease = { ...lease, isFree }

/** SQL: the time of the extra poll of the row `r`. */
export const extraPollAt = sql`r.doubt_poll_at`

/**
 * For SET: claims the row, which `due` has made due. One that is claimed before its time gets the present as its time,
 * so that it stays due until its poll ends.
 */
export function afterClaim(now: SQL, seconds: number): SQL {
  return sql`${pollLease.claim(now, seconds)},
        next_poll_at = case when r.next_poll_at > due.due_at and not due.is_extra then due.due_at
          else r.next_poll_at end`
}

/** SQL condition: no extra poll of the row `r` is asked for, or only one that a poll under way answers. */
export const needsExtraPoll = (now: SQL) => sql`(r.doubt_poll_at is null or not ${isFree(now)})`

/**
 * For SET: asks for an extra poll where the condition holds. One that was asked for before keeps its time, but not while
 * a poll is under way: that poll clears the time that it found, although it may have begun too early.
 */
export function askForExtraPoll(now: SQL, where: SQL = sql`true`): SQL {
  return sql`doubt_poll_at = case when ${where} and ${needsExtraPoll(now)} then ${nextExtraPoll(now)}
    else r.doubt_poll_at end`
}

/** For SET: an extra poll at once, for a caller that waits. */
export const askForExtraPollNow = (now: SQL) => sql`doubt_poll_at = ${now}`

/** For SET of the landing upsert, whose `excluded` has the next poll that the ruling demands (landing/rules.ts). */
export function afterLanding(now: SQL): SQL {
  return sql`next_poll_at = excluded.next_poll_at,
        doubt_poll_at = case when excluded.confirmed_at is null then coalesce(r.doubt_poll_at, (
          select ${nextExtraPoll(now)} from mediadock.deliveries d
          where d.request_id = r.request_id and d.parked_reason = 'key_mismatch' limit 1)) end,
        ${pollLease.giveBack(now)}`
}

/** For SET: the job of a hint may have ended. */
export function afterHint(now: SQL): SQL {
  return sql`next_poll_at = case when r.landed_at is null then least(r.next_poll_at, ${now})
          else r.next_poll_at end,
        ${askForExtraPoll(now, sql`r.landed_at is not null and r.confirmed_at is null`)},
        ${pollLease.giveBack(now)}`
}

/** For SET: the request is tracked again. `isRekeyed` is true if it is polled with another key from now on. */
export function afterTracking(now: SQL, isRekeyed: SQL): SQL {
  return sql`next_poll_at = case when ${isRekeyed} then ${now} else r.next_poll_at end,
    ${pollLease.giveBack(now)}`
}

/** SQL: polls the incomplete results among these requests now, unless they are due already. */
export function pollIncomplete(now: SQL, requestIds: SQL): SQL {
  return sql`update mediadock.requests r set next_poll_at = ${now}
      where r.request_id = any(${requestIds}) and r.landed_at is not null and not r.media_complete
        and r.confirmed_at is null and r.next_poll_at > ${now}`
}

/** The poll that ends: whether it was an extra one, and the time of the extra poll at its claim, which it answers. */
type AnsweredPoll = { is_extra: boolean; doubt_poll_at: string | null }

/** For SET: a poll without a result. `next` is the time in its rhythm, or infinity. */
export function afterPoll(poll: AnsweredPoll, next: SQL): SQL {
  // An extra poll of an open request leaves its schedule as it is. One of a landed request moves it.
  const at = poll.is_extra ? sql`case when r.landed_at is null then r.next_poll_at else ${next} end` : next
  return sql`next_poll_at = ${unlessConfirmed(at)},
      doubt_poll_at = nullif(r.doubt_poll_at, ${poll.doubt_poll_at}::timestamptz)`
}

/** For SET: a scheduled poll without an answer keeps its place. One that had no time yet is due from now on. */
export const afterNoAnswer = sql`next_poll_at = ${unlessConfirmed(sql`coalesce(r.next_poll_at, r.tracked_at)`)}`

/** For SET: the result was known. Nothing is left to poll for. */
export const afterKnownResult = sql`next_poll_at = null, doubt_poll_at = null`

/** SQL: the time of the next poll; null for a confirmed result, which an operator may poll, too. */
function unlessConfirmed(at: SQL): SQL {
  return sql`case when r.confirmed_at is null then ${at} end`
}
