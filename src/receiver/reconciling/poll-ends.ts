import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { maxInteger } from '../domain/limits.ts'
import type { PollOutcome } from '../domain/poll-outcomes.ts'
import { nextPollAfter, rhythmOf, type Rhythm } from '../domain/poll-rhythm.ts'
import type { RunningStatus } from '../domain/report.ts'
import * as schema from '../domain/schema.ts'
import type { ResultAnswer } from '../fetching/result-call.ts'
import { pollLease, type ClaimDeps, type Due } from './claimed-polls.ts'

const r = columnsOf(schema.requests, 'r')
const requests = columnsOf(schema.requests)

type Again = { outcome: PollOutcome; detail?: string; status?: RunningStatus; rhythm?: Rhythm }

/**
 * Sets the next poll of a request, in its rhythm. A lost request is not polled again, but a late webhook still lands. A
 * request that ended during the poll stays ended. An extra poll leaves the schedule of an open request as it was, so
 * that a delivery cannot cause early polls from then on.
 */
export async function reschedule(
  { db, time }: ClaimDeps,
  one: Due,
  { outcome, detail, status, rhythm = rhythmOf(outcome) }: Again,
): Promise<void> {
  await one.endRenewals()
  const now = time()
  const { polls, seconds_since_tracked: secondsSinceTracked } = one
  const inRhythm = nextPollAfter({ polls, secondsSinceTracked, rhythm }, now, Math.random)
  const again = outcome === 'lost' ? sql`'infinity'::timestamptz` : inRhythm
  const at = one.is_extra
    ? sql`case when ${r.landed_at} is null then ${one.scheduled_at}::timestamptz else ${again} end`
    : again
  await db.execute(sql`
    update mediadock.requests r set ${requests.polled_at} = greatest(${now}, ${r.polled_at}),
      ${requests.poll_outcome} = ${outcome}, ${requests.poll_detail} = ${detail?.slice(0, 500) ?? null},
      ${requests.next_poll_at} = ${unlessConfirmed(at)} ${seen(status)}
    where ${isStillOurs(one)}`)
}

/** SQL: the progress that a poll of a running request has seen. Progress and status never go back. */
function seen(status: RunningStatus | undefined): SQL {
  if (status === undefined) return sql``
  const progress = sql`, ${requests.progress} = greatest(${r.progress}, ${Math.floor(status.progress)}::int)`
  const position = status.queue_position === null ? null : Math.min(status.queue_position, maxInteger)
  const place = sql`, ${requests.queue_position} = ${position}::int`
  // Set only if the status may change, so that a trigger on the status does not run at every poll.
  if (status.status !== 'IN_PROGRESS') return sql`${progress}${place}`
  return sql`${progress}${place},
    ${requests.status} = case when ${r.status} = 'IN_QUEUE' then 'IN_PROGRESS' else ${r.status} end`
}

/** Gives back a postponed poll. It is not counted, and keeps its place in the order. */
export async function giveBack({ db, time }: ClaimDeps, one: Due, answer: ResultAnswer): Promise<void> {
  await one.endRenewals()
  const reason = answer.kind === 'postponed' ? answer.reason : answer.kind
  if (one.is_extra) return giveBackExtra(db, one)
  await db.execute(sql`
    update mediadock.requests r set ${requests.next_poll_at} = ${unlessConfirmed(sql`${one.due_at}::timestamptz`)},
      ${requests.polls} = ${r.polls} - 1, ${requests.polled_at} = greatest(${time()}, ${r.polled_at}),
      ${requests.poll_outcome} = 'postponed', ${requests.poll_detail} = ${reason}
    where ${isStillOurs(one)}`)
}

/** Gives back an extra poll. The schedule is restored, and the poll is not shown as postponed. */
async function giveBackExtra(db: Database, one: Due): Promise<void> {
  const scheduledAt = sql`${one.scheduled_at}::timestamptz`
  await db.execute(sql`
    update mediadock.requests r set ${requests.next_poll_at} = ${unlessConfirmed(scheduledAt)},
      ${requests.doubt_poll_at} = ${unlessConfirmed(sql`${one.due_at}::timestamptz`)},
      ${requests.polls} = ${r.polls} - 1
    where ${isStillOurs(one)}`)
}

/** SQL: the time of the next poll; null for a confirmed result, which an operator may poll, too. */
function unlessConfirmed(at: SQL): SQL {
  return sql`case when ${r.confirmed_at} is null then ${at} end`
}

/** Ends the schedule of a request whose result was already known. */
export async function endPolling({ db, time }: ClaimDeps, one: Due): Promise<void> {
  await one.endRenewals()
  await pollLease.write(
    db,
    one,
    sql`${requests.next_poll_at} = null, ${requests.doubt_poll_at} = null, ${requests.polled_at} = ${time()},
      ${requests.poll_outcome} = 'result', ${requests.poll_detail} = null`,
  )
}

function isStillOurs(one: Due): SQL {
  return sql`${pollLease.isHeld(one)} and (${r.landed_at} is null or ${r.next_poll_at} is not null)`
}
