import { setTimeout as delay } from 'node:timers/promises'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { faultOf, metALock, postgresMessage } from '../../platform/postgres/errors.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import type { Environment } from '../domain/environment.ts'
import { environmentOfKey } from '../domain/keys.ts'
import { maxInteger } from '../domain/limits.ts'
import { pollEndings, type PollEnding } from '../domain/poll-endings.ts'
import { nextPollAfter } from '../domain/poll-rhythm.ts'
import { afterKnownResult, afterNoAnswer, afterPoll, pollLease } from '../domain/poll-schedule.ts'
import type { Report, RunningStatus } from '../domain/report.ts'
import type { Fetcher, ResultAnswer } from '../fetching/fetcher.ts'
import { landOne, type LandingOutcome } from '../landing/land-reports.ts'
import type { LandingDeps } from '../landing/landing-deps.ts'
import { lockedRequests } from '../landing/locked-requests.ts'
import { lockWait } from '../landing/parts-sql.ts'
import { reportToLand } from '../landing/report-to-land.ts'
import type { ClaimDeps, ClaimedPoll } from './poll-claims.ts'
import type { RestingQueues } from './resting-queues.ts'

export type PollingDeps = ClaimDeps &
  Pick<LandingDeps, 'mediaHosts' | 'logger' | 'onProcessed'> & {
    clock: () => Date
    fetchResult: Fetcher
    /** Cuts the calls in flight. */
    cut: AbortSignal
  }

/**
 * Starts the polls of claimed requests, and returns their promises once each has got its call or none. Calls are
 * granted in order, one after the other. They then run side by side, and each lands its own answer. The queue of a poll
 * without a call rests.
 */
export async function beginPolls(
  deps: PollingDeps,
  due: readonly ClaimedPoll[],
  resting: RestingQueues,
): Promise<Promise<PollEnding>[]> {
  const polls: Promise<PollEnding>[] = []
  for (const one of due) {
    const granted = Promise.withResolvers<void>()
    const polled = poll(deps, one, granted.resolve).then((ending) => {
      if (pollEndings[ending].next === 'in_place') resting.add(one)
      return ending
    })
    polls.push(polled)
    // The caller handles a failure later.
    await Promise.race([granted.promise, polled.catch(() => {})])
  }
  return polls
}

/** Polls one claimed request. Calls `onGranted` once a call is granted. */
export async function poll(deps: PollingDeps, one: ClaimedPoll, onGranted = () => {}): Promise<PollEnding> {
  // The keys that the fetcher reads. The settings may lose the key during the call.
  const keys = deps.keys()
  try {
    const { answer, keyName = '' } = await deps.fetchResult({
      requestId: one.request_id,
      jobId: one.external_id ?? one.request_id,
      sourceName: one.source_name,
      model: one.model ?? undefined,
      keyName: one.key_name ?? undefined,
      environment: one.environment,
      onlySandboxSigned: one.only_sandbox_signed,
      purpose: one.is_extra || one.is_unknown ? 'trial' : 'completing',
      pollNumber: one.polls,
      signal: deps.cut,
      onGranted,
    })
    return answer.kind === 'result'
      ? await landOrPostpone(deps, {
          one,
          keyName,
          environment: environmentOfKey(keys, keyName),
          report: answer.report,
        })
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

type WithoutResult = Exclude<ResultAnswer, { kind: 'result' }>

/** The endings without a landed result. */
type OpenEnding = Exclude<PollEnding, 'landed' | 'result'>

/** Schedules the next poll after an answer without a result, as pollEndings says. */
async function pollAgain(deps: ClaimDeps, one: ClaimedPoll, answer: WithoutResult): Promise<PollEnding> {
  const ending = endingOf(one, answer)
  const detail = 'reason' in answer ? answer.reason : 'detail' in answer ? answer.detail : undefined
  if (pollEndings[ending].next === 'in_place') await undoClaim(deps, one, detail ?? ending)
  else await reschedule(deps, one, ending, { detail, status: answer.kind === 'running' ? answer.status : undefined })
  return ending
}

function endingOf(one: ClaimedPoll, answer: WithoutResult): OpenEnding {
  if (answer.kind === 'not_found' && one.seconds_unchanged > lostAfterSeconds) return 'lost'
  if (answer.kind === 'no_call' && answer.reason === 'no_key') return 'no_key'
  const isForUnknown = one.is_unknown && !one.is_extra
  // At its old place, it would stay due before requests that the provider knows. Made-up ids may be many.
  if (answer.kind === 'no_call' && answer.reason === 'quota' && isForUnknown) return 'not_found_yet'
  return answer.kind
}

type Answered = { one: ClaimedPoll; keyName: string; environment: Environment | undefined; report: Report }

/** A lock of another transaction on the row is waited for a few times, since the call is already spent. */
const locked = { tries: 3, baseMs: 1000, capMs: 5000 }

/** Lands a result. If Postgres refuses it, the request is polled again later and others continue. */
async function landOrPostpone(deps: PollingDeps, answered: Answered): Promise<PollEnding> {
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
        await reschedule(deps, one, 'landing_failed', { detail: postgresMessage(error) })
      return 'landing_failed'
    }
  }
}

async function landAnswer(
  deps: PollingDeps,
  { one, keyName, environment, report: found }: Answered,
): Promise<LandingOutcome> {
  const origin = { via: 'poll', source_name: one.source_name, key_name: keyName, environment } as const
  const report = reportToLand(found, origin, deps.mediaHosts)
  const at = { now: deps.time(), keys: deps.keys }
  const outcome = await landOne(deps.db, report, at)
  // Landing does not write a known result again, so the schedule must be ended here.
  if (outcome === 'no_effect' || outcome === 'contradiction') await endPolling(deps, one)
  deps.logger.info(
    { request_id: one.request_id, key_name: keyName, status: report.status, outcome },
    'request reconciled',
  )
  deps.onProcessed({ report, outcome, receivedAt: undefined })
  return outcome
}

/** Adds to the ending: a detail for readers, and the progress of a running request. */
type Shown = { detail?: string | undefined; status?: RunningStatus | undefined }

/**
 * Sets the next poll of a request, in its rhythm. A lost request is not polled again, but a late webhook still lands.
 */
export async function reschedule(
  deps: ClaimDeps,
  one: ClaimedPoll,
  ending: OpenEnding,
  { detail, status }: Shown = {},
): Promise<void> {
  const now = deps.time()
  const { polls, seconds_since_tracked: secondsSinceTracked } = one
  const { stored: outcome, next } = pollEndings[ending]
  const again =
    next === 'steady' || next === 'slowing'
      ? nextPollAfter({ polls, secondsSinceTracked, rhythm: next }, now)
      : sql`'infinity'::timestamptz`
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
function endPolling(deps: ClaimDeps, one: ClaimedPoll): Promise<void> {
  return end(
    deps,
    one,
    sql`${afterKnownResult}, polled_at = ${deps.time()}, poll_outcome = 'result', poll_detail = null`,
  )
}

/**
 * Writes the end of a poll while its claim holds. Polls have few connections, so it does not wait long for a row that
 * another transaction locks: that request is polled again once its lease ends.
 */
async function end({ db, time }: ClaimDeps, one: ClaimedPoll, set: SQL): Promise<void> {
  const ended = db.execute(sql`
    with lock_wait as materialized (${lockWait()})
    update mediadock.requests r set ${pollLease.giveBack(time())}, ${set}
    from lock_wait where ${pollLease.isHeld(one)}`)
  await ended.catch((error: unknown) => {
    if (!metALock(error)) throw error
  })
}
