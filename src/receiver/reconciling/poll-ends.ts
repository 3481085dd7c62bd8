import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { PollOutcome } from '../domain/poll-outcomes.ts'
import * as schema from '../domain/schema.ts'
import type { ResultAnswer } from '../fetching/result-call.ts'
import type { ClaimDeps, Due } from './poll-claims.ts'
import { nextPollAfter, rhythmOf, type Rhythm } from './rhythm.ts'

const requests = columnsOf(schema.requests)

const maxDetail = 500

type Again = { outcome: PollOutcome; detail?: string; status?: string; rhythm?: Rhythm }

/**
 * Polled again, in the rhythm of what is waited for; a request that is lost is not polled again, but a
 * late webhook still lands. What ended while it was polled stays ended. A poll for doubt leaves the schedule of an open
 * request as it was: otherwise one delivery would have it polled early from then on.
 */
export async function reschedule(
  { db, clock }: ClaimDeps,
  one: Due,
  { outcome, detail, status, rhythm = rhythmOf(outcome) }: Again,
): Promise<void> {
  const now = clock()
  const again = outcome === 'lost' ? sql`'infinity'::timestamptz` : nextPollAfter({ ...one, rhythm }, now, Math.random)
  const at = one.besideSchedule
    ? sql`case when ${requests.landed_at} is null then ${one.besideSchedule.scheduledAt}::timestamptz else ${again} end`
    : again
  // Only where it may change: a reader's trigger on the status need not run for a poll.
  const started =
    status === 'IN_PROGRESS'
      ? sql`, ${requests.status} = case when ${requests.status} = 'IN_QUEUE' then 'IN_PROGRESS' else ${requests.status} end`
      : sql``
  await db.execute(sql`
    update mediadock.requests set ${requests.polled_at} = greatest(${now.toISOString()}::timestamptz, ${requests.polled_at}), ${requests.poll_outcome} = ${outcome},
      ${requests.poll_detail} = ${detail?.slice(0, maxDetail) ?? null},
      ${requests.next_poll_at} = ${unlessConfirmed(at)} ${started}
    where ${isStillOurs(one)}`)
}

/** Postponed, so not counted: it keeps its place in the order. */
export async function giveBack({ db, clock }: ClaimDeps, one: Due, answer: ResultAnswer): Promise<void> {
  const reason = answer.kind === 'postponed' ? answer.reason : answer.kind
  if (one.besideSchedule) return giveBackDoubt(db, one, one.besideSchedule)
  await db.execute(sql`
    update mediadock.requests set ${requests.next_poll_at} = ${unlessConfirmed(sql`${one.dueAt}::timestamptz`)}, ${requests.polls} = ${requests.polls} - 1,
      ${requests.polled_at} = greatest(${clock().toISOString()}::timestamptz, ${requests.polled_at}), ${requests.poll_outcome} = 'postponed', ${requests.poll_detail} = ${reason}
    where ${isStillOurs(one)}`)
}

/** Its schedule is as it was, and so it is not shown as postponed. */
async function giveBackDoubt(
  db: Database,
  one: Due,
  { scheduledAt }: NonNullable<Due['besideSchedule']>,
): Promise<void> {
  await db.execute(sql`
    update mediadock.requests set ${requests.next_poll_at} = ${unlessConfirmed(sql`${scheduledAt}::timestamptz`)},
      ${requests.doubt_poll_at} = ${unlessConfirmed(sql`${one.dueAt}::timestamptz`)}, ${requests.polls} = ${requests.polls} - 1
    where ${isStillOurs(one)}`)
}

/** A person may ask for a result that is whole: that it was asked for leaves nothing open. */
function unlessConfirmed(at: SQL): SQL {
  return sql`case when ${requests.confirmed_at} is null then ${at} end`
}

export async function endPolling(db: Database, one: Due, now: Date): Promise<void> {
  await db.execute(sql`
    update mediadock.requests set ${requests.next_poll_at} = null, ${requests.doubt_poll_at} = null, ${requests.polled_at} = ${now.toISOString()}::timestamptz, ${requests.poll_outcome} = 'result',
      ${requests.poll_detail} = null
    where ${requests.request_id} = ${one.requestId} and ${requests.polls} = ${one.polls}`)
}

function isStillOurs({ requestId, polls }: Due) {
  return sql`${requests.request_id} = ${requestId} and ${requests.polls} = ${polls} and (${requests.landed_at} is null or ${requests.next_poll_at} is not null)`
}
