import { setTimeout as delay } from 'node:timers/promises'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { faultOf, metALock, postgresMessage } from '../../platform/postgres/errors.ts'
import { lockWait } from '../../platform/postgres/lock-wait.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import type { Environment } from '../domain/environment.ts'
import { environmentOfKey } from '../domain/keys.ts'
import { maxInteger } from '../domain/limits.ts'
import { pollEndings, type NextPoll, type PollEnding } from '../domain/poll-endings.ts'
import { nextPollAfter } from '../domain/poll-rhythm.ts'
import { afterKnownResult, afterNoAnswer, afterPoll, pollLease } from '../domain/poll-schedule.ts'
import type { Report, RunningStatus } from '../domain/report.ts'
import type { Fetcher, ResultAnswer } from '../fetching/fetcher.ts'
import type { LandingOutcome } from '../landing/effects.ts'
import { landOne } from '../landing/land-reports.ts'
import type { LandingDeps } from '../landing/landing-deps.ts'
import { reportToLand } from '../landing/report-to-land.ts'
import type { RestingQueues } from './due.ts'
import type { ClaimDeps, ClaimedPoll } from './poll-claims.ts'

/* Makes the polls of claimed requests: asks the source, then lands the result, or writes the ending of the poll. */

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
export async function poll(deps: PollingDeps, claimed: ClaimedPoll, onGranted = () => {}): Promise<PollEnding> {
  // The keys that the fetcher reads. The settings may lose the key during the call.
  const keys = deps.keys()
  try {
    const { answer, keyName = '' } = await deps.fetchResult({
      requestId: claimed.request_id,
      jobId: claimed.external_id ?? claimed.request_id,
      sourceName: claimed.source_name,
      model: claimed.model ?? undefined,
      keyName: claimed.key_name ?? undefined,
      environment: claimed.environment,
      onlySandboxSigned: claimed.only_sandbox_signed,
      purpose: claimed.is_extra || claimed.is_unknown ? 'trial' : 'completing',
      pollNumber: claimed.polls,
      mayBeLost: mayBeLost(claimed),
      signal: deps.cut,
      onGranted,
    })
    if (answer.kind === 'result') {
      const environment = environmentOfKey(keys, keyName)
      return await landWithRetries(deps, claimed, { report: answer.report, keyName, environment })
    }
    const ending = endingOf(claimed, answer)
    await endPoll(deps, claimed, ending, shownOf(answer))
    return ending
  } finally {
    await claimed.endRenewals()
  }
}

/**
 * A request that is still unknown this long after it was tracked, or landed, is not polled again: the answer will not
 * change.
 */
const lostAfterSeconds = 86_400

function mayBeLost({ seconds_unchanged }: ClaimedPoll): boolean {
  return seconds_unchanged > lostAfterSeconds
}

type WithoutResult = Exclude<ResultAnswer, { kind: 'result' }>

/** Returns the ending of a poll whose answer has no result: mostly, the answer itself. */
function endingOf(claimed: ClaimedPoll, answer: WithoutResult): EndingHere {
  if (answer.kind === 'not_found' && mayBeLost(claimed)) return 'lost'
  const isForUnknown = claimed.is_unknown && !claimed.is_extra
  // At its old place, it would stay due before requests that the provider knows. Made-up ids may be many.
  if (answer.kind === 'no_call' && answer.reason === 'quota' && isForUnknown) return 'not_found_yet'
  return answer.kind
}

/** Shown to readers beside the ending: a detail, and the progress of a running request. */
type Shown = { detail?: string | undefined; status?: RunningStatus | undefined }

function shownOf(answer: WithoutResult): Shown {
  if (answer.kind === 'running') return { status: answer.status }
  return { detail: 'reason' in answer ? answer.reason : 'detail' in answer ? answer.detail : undefined }
}

type Found = { report: Report; keyName: string; environment: Environment | undefined }

/** A lock of another transaction on the row is waited for a few times, since the call is already spent. */
const locked = { tries: 3, baseMs: 1000, capMs: 5000 }

/** Lands a result. If Postgres refuses it, the request is polled again later and others continue. */
async function landWithRetries(deps: PollingDeps, claimed: ClaimedPoll, found: Found): Promise<PollEnding> {
  for (let tries = 1; ; tries += 1) {
    try {
      return (await land(deps, claimed, found)) === 'landed' ? 'landed' : 'known'
    } catch (error) {
      if (metALock(error) && tries < locked.tries && !deps.cut.aborted) {
        await delay(jitteredPauseMs(tries, locked, Math.random), undefined, { signal: deps.cut }).catch(() => {})
        continue
      }
      if (faultOf(error) === 'server') throw error
      deps.logger.error(
        { err: error, request_id: claimed.request_id },
        'a result could not be landed, it is polled again later',
      )
      await endPoll(deps, claimed, 'landing_failed', { detail: postgresMessage(error) })
      return 'landing_failed'
    }
  }
}

async function land(deps: PollingDeps, claimed: ClaimedPoll, found: Found): Promise<LandingOutcome> {
  const { keyName, environment } = found
  const origin = { via: 'poll', source_name: claimed.source_name, reporting_key: keyName, environment } as const
  const report = reportToLand(found.report, origin, deps.mediaHosts)
  const outcome = await landOne(deps.db, report, { now: deps.time(), keys: deps.keys })
  // A landing that writes the request ends its poll too. These two do not write it. After `raced`, the lease expires.
  if (outcome === 'no_effect' || outcome === 'contradiction') await endPoll(deps, claimed, 'known')
  deps.logger.info(
    { request_id: claimed.request_id, key_name: keyName, status: report.status, outcome },
    'request reconciled',
  )
  deps.onProcessed({ report, outcome, receivedAt: undefined })
  return outcome
}

/** The endings that are written here. A landing writes the other one. */
type EndingHere = Exclude<PollEnding, 'landed'>

/**
 * Ends the claim of a poll and writes its ending and the next poll to the request, as `pollEndings` says. Does nothing
 * if the claim is no longer held. Polls have few connections, so it does not wait long for a row that another
 * transaction locks: that request is polled again once its lease expires.
 */
export async function endPoll(
  { db, time }: ClaimDeps,
  claimed: ClaimedPoll,
  ending: EndingHere,
  shown: Shown = {},
): Promise<void> {
  const now = time()
  const { stored, next } = pollEndings[ending]
  // An extra poll without an answer is not shown: the request still has its scheduled poll.
  const isShown = next !== 'in_place' || !claimed.is_extra
  const detail = shown.detail ?? (stored === 'postponed' ? ending : undefined)
  const set = isShown
    ? sql`${scheduleAfter(claimed, next, now)}, polled_at = greatest(${now}, r.polled_at),
        poll_outcome = ${stored}, poll_detail = ${detail?.slice(0, 500) ?? null} ${progressOf(shown.status)}`
    : notCounted
  const ended = db.execute(sql`
    with lock_wait as materialized (${lockWait()})
    update mediadock.requests r set ${pollLease.giveBack(now)}, ${set}
    from lock_wait where ${pollLease.isHeld(claimed)}`)
  await ended.catch((error: unknown) => {
    if (!metALock(error)) throw error
  })
}

/** For SET: `polls` counts the polls that showed something of the request. The claim has counted this one. */
const notCounted = sql`polls = r.polls - 1`

/** For SET: the next poll. */
function scheduleAfter(claimed: ClaimedPoll, next: NextPoll, now: SQL): SQL {
  switch (next) {
    case 'steady':
    case 'slowing':
      return afterPoll(claimed, nextPollAfter(claimed, next, now))
    case 'in_place':
      return sql`${afterNoAnswer}, ${notCounted}`
    case 'never':
      return afterPoll(claimed, sql`'infinity'::timestamptz`)
    case 'done':
      return afterKnownResult
    default:
      return next satisfies never
  }
}

/** For SET: the progress that a poll of a running request has seen. Progress and status never go back. */
function progressOf(status: RunningStatus | undefined): SQL {
  if (status === undefined) return sql``
  const position = status.queue_position === null ? null : Math.min(status.queue_position, maxInteger)
  const progress = sql`, progress = greatest(r.progress, ${Math.floor(status.progress)}::int),
      queue_position = ${position}::int`
  // Set only if the status may change, so that a trigger on the status does not run at every poll.
  if (status.status !== 'IN_PROGRESS') return progress
  return sql`${progress}, status = case when r.status = 'IN_QUEUE' then 'IN_PROGRESS' else r.status end`
}
