import { setTimeout as delay } from 'node:timers/promises'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { faultOf, metALock, postgresMessage } from '../../platform/postgres/errors.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import { environmentsOf } from '../domain/keys.ts'
import { maxInteger } from '../domain/limits.ts'
import type { PollOutcome } from '../domain/poll-outcomes.ts'
import { nextPollAfter, rhythmOf, type Rhythm } from '../domain/poll-rhythm.ts'
import { afterKnownResult, afterNoAnswer, afterPoll, pollLease } from '../domain/poll-schedule.ts'
import type { Report, RunningStatus } from '../domain/report.ts'
import type { Fetcher, ResultAnswer } from '../fetching/fetcher.ts'
import type { LandingDeps } from '../landing/landing-deps.ts'
import { lockedRequests } from '../landing/locked-requests.ts'
import { reportToLand } from '../landing/report-to-land.ts'
import { landOrThrow, type LandingOutcome } from '../landing/two-statements.ts'
import type { ClaimDeps, ClaimedPoll, Resting } from './poll-claims.ts'

export type PollingDeps = ClaimDeps &
  Pick<LandingDeps, 'mediaHosts' | 'logger' | 'onProcessed'> & {
    clock: () => Date
    fetchResult: Fetcher
    /** Cuts the calls in flight. */
    cut: AbortSignal
  }

/**
 * How a poll ended: the kind of its answer (ResultAnswer), but for two. `landed`: its result changed the request for
 * readers; `result` did not, or other landings changed the row at each try. `landing_failed`: Postgres refused the
 * result. After `no_call`, `unauthorized` and `rate_limited` the request keeps its place in the order, after the others
 * it gets a later one.
 */
export type PollEnd = ResultAnswer['kind'] | 'landed' | 'landing_failed'

/**
 * Starts the polls of claimed requests, and returns their promises once each has got its call or none. Calls are
 * granted in order, one after the other. They then run side by side, and each lands its own answer. The queue of a poll
 * without a call rests.
 */
export async function beginPolls(
  deps: PollingDeps,
  due: readonly ClaimedPoll[],
  resting: Resting,
): Promise<Promise<PollEnd>[]> {
  const polls: Promise<PollEnd>[] = []
  for (const one of due) {
    const granted = Promise.withResolvers<void>()
    const polled = poll(deps, one, granted.resolve).then((ended) => {
      if (ended === 'no_call' || ended === 'unauthorized' || ended === 'rate_limited') resting.add(one)
      return ended
    })
    polls.push(polled)
    // The caller handles a failure later.
    await Promise.race([granted.promise, polled.catch(() => {})])
  }
  return polls
}

/** Polls one claimed request. Calls `onGranted` once a call is granted. */
export async function poll(deps: PollingDeps, one: ClaimedPoll, onGranted = () => {}): Promise<PollEnd> {
  try {
    const { answer, keyName = '' } = await deps.fetchResult({
      requestId: one.request_id,
      jobId: one.external_id ?? one.request_id,
      sourceName: one.source_name,
      model: one.model ?? undefined,
      keyName: one.key_name ?? undefined,
      environment: one.sandbox === null ? undefined : one.sandbox ? 'sandbox' : 'live',
      onlySandboxSigned: one.only_sandbox_signed,
      purpose: one.is_extra || one.is_unknown ? 'trial' : 'completing',
      pollNumber: one.polls,
      signal: deps.cut,
      onGranted,
    })
    return answer.kind === 'result'
      ? await landOrPostpone(deps, { one, keyName, report: answer.report })
      : await pollAgain(deps, one, answer)
  } finally {
    await one.endRenewals()
  }
}

/**
 * A request that is still unknown this long after it was tracked, or landed, is not polled again: the answer will not
 * change.
 */
const lostAfterSeconds = 86_400

/** Schedules the next poll after an answer without a result. */
async function pollAgain(
  deps: ClaimDeps,
  one: ClaimedPoll,
  answer: Exclude<ResultAnswer, { kind: 'result' }>,
): Promise<PollEnd> {
  switch (answer.kind) {
    case 'running':
      await reschedule(deps, one, { outcome: answer.kind, status: answer.status })
      return answer.kind
    case 'not_found': {
      const isLost = one.seconds_unchanged > lostAfterSeconds
      await reschedule(deps, one, { outcome: isLost ? 'lost' : answer.kind })
      return answer.kind
    }
    case 'unreachable':
    case 'invalid':
      await reschedule(deps, one, { outcome: answer.kind, detail: answer.detail })
      return answer.kind
    case 'not_found_yet':
      // A refused key may be accepted again at any moment, and only a request of that key shows it.
      await reschedule(deps, one, {
        outcome: answer.reason === 'quota' ? answer.kind : 'postponed',
        detail: answer.reason,
        ...(answer.reason === 'unauthorized' && { rhythm: 'steady' }),
      })
      return answer.kind
    case 'unauthorized':
    case 'rate_limited':
      await undoClaim(deps, one, answer.kind)
      return answer.kind
    case 'no_call':
      if (one.is_unknown && !one.is_extra && answer.reason === 'quota') {
        // At its old place, it would stay due before requests that the provider knows. Made-up ids may be many.
        await reschedule(deps, one, { outcome: 'not_found_yet', detail: answer.reason })
        return 'not_found_yet'
      }
      await undoClaim(deps, one, answer.reason)
      return answer.kind
    default:
      return answer satisfies never
  }
}

type Answered = { one: ClaimedPoll; keyName: string; report: Report }

/** A lock of another transaction on the row is waited for a few times, since the call is already spent. */
const locked = { tries: 3, baseMs: 1000, capMs: 5000 }

/** Lands a result. If Postgres refuses it, the request is polled again later and others continue. */
async function landOrPostpone(deps: PollingDeps, answered: Answered): Promise<PollEnd> {
  const { one } = answered
  for (let tries = 1; ; tries += 1) {
    try {
      return (await landAnswer(deps, answered)) === 'landed' ? 'landed' : 'result'
    } catch (error) {
      const isLocked = metALock(error)
      if (isLocked && tries < locked.tries && !deps.cut.aborted) {
        await delay(jitteredPauseMs(tries, locked, Math.random), undefined, { signal: deps.cut }).catch(() => {})
        continue
      }
      if (faultOf(error) === 'server') throw error
      deps.logger.error(
        { err: error, request_id: one.request_id },
        'a result could not be landed, it is polled again later',
      )
      // A locked row cannot get another time. It is polled again after its lease ends.
      if (!isLocked || (await lockedRequests(deps.db, [one.request_id])).size === 0)
        await reschedule(deps, one, { outcome: 'landing_failed', detail: postgresMessage(error) })
      return 'landing_failed'
    }
  }
}

async function landAnswer(deps: PollingDeps, { one, keyName, report: found }: Answered): Promise<LandingOutcome> {
  const environment = deps.keys().byName.get(keyName)?.environment
  const origin = { via: 'poll', source_name: one.source_name, key_name: keyName, environment } as const
  const report = reportToLand(found, origin, deps.mediaHosts)
  const at = { now: deps.time(), environments: environmentsOf(deps.keys()) }
  const outcome = (await landOrThrow(deps.db, [report], at)).get(one.request_id) ?? 'raced'
  // Landing does not write a known result again, so the schedule must be ended here.
  if (outcome === 'no_effect' || outcome === 'contradiction') await endPolling(deps, one)
  deps.logger.info(
    { request_id: one.request_id, key_name: keyName, status: report.status, outcome },
    'request reconciled',
  )
  deps.onProcessed({ report, outcome, receivedAt: undefined })
  return outcome
}

type Again = { outcome: PollOutcome; detail?: string; status?: RunningStatus; rhythm?: Rhythm }

/**
 * Sets the next poll of a request, in its rhythm. A lost request is not polled again, but a late webhook still lands.
 */
export async function reschedule(
  deps: ClaimDeps,
  one: ClaimedPoll,
  { outcome, detail, status, rhythm = rhythmOf(outcome) }: Again,
): Promise<void> {
  const now = deps.time()
  const { polls, seconds_since_tracked: secondsSinceTracked } = one
  const inRhythm = nextPollAfter({ polls, secondsSinceTracked, rhythm }, now, Math.random)
  const again = outcome === 'lost' ? sql`'infinity'::timestamptz` : inRhythm
  await end(
    deps,
    one,
    sql`${afterPoll(one, again)}, polled_at = greatest(${now}, r.polled_at),
      poll_outcome = ${outcome}, poll_detail = ${detail?.slice(0, 500) ?? null} ${seen(status)}`,
  )
}

/** SQL: the progress that a poll of a running request has seen. Progress and status never go back. */
function seen(status: RunningStatus | undefined): SQL {
  if (status === undefined) return sql``
  const position = status.queue_position === null ? null : Math.min(status.queue_position, maxInteger)
  const progress = sql`, progress = greatest(r.progress, ${Math.floor(status.progress)}::int),
      queue_position = ${position}::int`
  // Set only if the status may change, so that a trigger on the status does not run at every poll.
  if (status.status !== 'IN_PROGRESS') return progress
  return sql`${progress}, status = case when r.status = 'IN_QUEUE' then 'IN_PROGRESS' else r.status end`
}

/**
 * Undoes the claim of a poll that showed nothing about its request: it got no call, or its key was refused or limited.
 * The poll is not counted and keeps its place in the order. An extra poll is not shown as postponed.
 */
export function undoClaim(deps: ClaimDeps, one: ClaimedPoll, reason: string): Promise<void> {
  const place = one.is_extra
    ? sql``
    : sql`, ${afterNoAnswer},
        polled_at = greatest(${deps.time()}, r.polled_at), poll_outcome = 'postponed', poll_detail = ${reason}`
  return end(deps, one, sql`polls = r.polls - 1 ${place}`)
}

/** Ends the schedule of a request whose result was already known. */
export function endPolling(deps: ClaimDeps, one: ClaimedPoll): Promise<void> {
  return end(
    deps,
    one,
    sql`${afterKnownResult}, polled_at = ${deps.time()}, poll_outcome = 'result', poll_detail = null`,
  )
}

/** Writes the end of a poll while its claim holds. */
async function end({ db, time }: ClaimDeps, one: ClaimedPoll, set: SQL): Promise<void> {
  await one.endRenewals()
  await db.execute(sql`
    update mediadock.requests r set ${pollLease.giveBack(time())}, ${set} where ${pollLease.isHeld(one)}`)
}
