import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from '../../platform/logger.ts'
import { isAboutTheRow, metALock, postgresMessage } from '../../platform/postgres/errors.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import { environmentsOf } from '../domain/keys.ts'
import type { Report } from '../domain/report.ts'
import type { Fetcher } from '../fetching/fetcher.ts'
import type { ResultAnswer } from '../fetching/result-call.ts'
import { landingOfReport, type Landing } from '../landing/row-to-write.ts'
import { land, lockedRequests, type LandingOutcome } from '../landing/two-statements.ts'
import type { ClaimDeps, Due } from './claimed-polls.ts'
import { claimDue, claimOne, claimOverdue, lineOf } from './poll-claims.ts'
import { endPolling, giveBack, reschedule } from './poll-ends.ts'

export type ReconcilerDeps = ClaimDeps & {
  fetchResult: Fetcher
  mediaHosts: readonly string[] | undefined
  clock: () => Date
  fetchRatePerMinute: number
  logger: Logger
  onProcessed: (processed: { landing: Landing; outcome: LandingOutcome; receivedAt: Date | undefined }) => void
  /** Cuts the calls in flight. */
  cut: AbortSignal
}

export type ReconcileRun = {
  scanned: number
  landed: number
  running: number
  notFound: number
  failed: number
  postponed: number
  rateLimited: number
}

const claimRows = 16
/** A request that is still unknown this long after it was tracked is not polled again: the answer will not change. */
const lostAfterSeconds = 86_400

/**
 * One run: polls everything that is due or overdue, as far as the keys' budgets allow. The state in Postgres decides,
 * so a missed tick loses nothing, and any number of replicas share the work.
 */
export async function runOnce(deps: ReconcilerDeps, signal?: AbortSignal): Promise<ReconcileRun> {
  const run = newRun()
  // Lines without calls. Their requests wait for the next run; other lines continue.
  const resting = new Set<string>()
  const restingExtra = new Set<string>()
  // The limit of one run. The next tick continues.
  while (run.scanned < 2000 && !signal?.aborted) {
    const wanted = { limit: claimRows, resting }
    // Requests that were never polled may be unknown to the provider, so those that it knows get their calls first.
    const due = [...(await claimDue(deps, { ...wanted, restingExtra })), ...(await claimOverdue(deps, wanted))]
    if (due.length === 0) break
    run.scanned += due.length
    const failures: unknown[] = []
    const polls = await beginPolls(deps, due, (one, end) => {
      count(run, end)
      if (isGivenBack(end)) (one.is_extra ? restingExtra : resting).add(lineOf(deps.keys(), one.key_name))
    })
    const caught = (error: unknown) => {
      if (!isAboutTheRow(error)) return void failures.push(error)
      // The failure concerns only this request.
      run.failed += 1
      return deps.logger.error(
        { err: error },
        'the outcome of a poll could not be written, the request is polled again after its lease ends',
      )
    }
    // Each failure is caught at once, since one poll may fail while another is awaited.
    await Promise.all(polls.map((polled) => polled.catch(caught)))
    if (failures.length > 0) throw failures[0]
  }
  return run
}

/**
 * Starts the polls of claimed requests, and returns their promises once each has got its call or none. Calls are
 * granted in order, one after the other. They then run side by side, and each lands its own answer.
 */
export async function beginPolls(
  deps: ReconcilerDeps,
  due: readonly Due[],
  onEnd: (one: Due, end: PollEnd) => void,
): Promise<Promise<void>[]> {
  const polls: Promise<void>[] = []
  for (const one of due) {
    const decided = Promise.withResolvers<void>()
    const polled = poll(deps, one, decided.resolve).then((end) => onEnd(one, end))
    // The caller handles the failure later. This avoids an unhandled rejection until then.
    polled.catch(() => {})
    polls.push(polled)
    await Promise.race([decided.promise, polled.catch(() => {})])
  }
  return polls
}

/** Polls one request now, regardless of its schedule. Undefined if it is not tracked or its row stays locked. */
export async function reconcileOne(deps: ReconcilerDeps, requestId: string): Promise<ReconcileRun | undefined> {
  const one = await claimOne(deps, requestId)
  if (!one) return undefined
  const run = { ...newRun(), scanned: 1 }
  // An operator's poll may take any call, also for an unknown request.
  count(run, await poll(deps, { ...one, is_unknown: false }))
  return run
}

function newRun(): ReconcileRun {
  return { scanned: 0, landed: 0, running: 0, notFound: 0, failed: 0, postponed: 0, rateLimited: 0 }
}

/** How a poll ended. Given back, it got no call or no answer because of its key, and keeps its time. */
export type PollEnd = 'landed' | 'running' | 'notFound' | 'failed' | 'postponed' | 'givenBack' | 'rateLimited'

export function isGivenBack(end: PollEnd): end is 'givenBack' | 'rateLimited' {
  return end === 'givenBack' || end === 'rateLimited'
}

function count(run: ReconcileRun, end: PollEnd): void {
  run[isGivenBack(end) ? 'postponed' : end] += 1
  if (end === 'rateLimited') run.rateLimited += 1
}

async function poll(deps: ReconcilerDeps, one: Due, onDecided = () => {}): Promise<PollEnd> {
  try {
    const { answer, keyName = '' } = await deps.fetchResult({
      requestId: one.request_id,
      jobId: one.external_id ?? one.request_id,
      sourceName: one.source_name,
      model: one.model ?? undefined,
      keyName: one.key_name ?? undefined,
      environment: one.sandbox === null ? undefined : one.sandbox ? 'sandbox' : 'live',
      onlySandboxSigned: one.only_sandbox_signed,
      purpose: one.is_extra || one.is_unknown ? 'extra' : 'completing',
      turn: one.polls,
      signal: deps.cut,
      onDecided,
    })
    return answer.kind === 'result'
      ? await landOrPostpone(deps, { one, keyName, report: answer.report })
      : await pollAgain(deps, one, answer)
  } finally {
    await one.endRenewals()
  }
}

/** Schedules the next poll after an answer without a result. */
async function pollAgain(
  deps: ReconcilerDeps,
  one: Due,
  answer: Exclude<ResultAnswer, { kind: 'result' }>,
): Promise<PollEnd> {
  switch (answer.kind) {
    case 'running':
      await reschedule(deps, one, { outcome: answer.kind, status: answer.status })
      return 'running'
    case 'not_found': {
      const isLost = one.seconds_since_tracked > lostAfterSeconds
      await reschedule(deps, one, { outcome: isLost ? 'lost' : answer.kind })
      return 'notFound'
    }
    case 'unreachable':
    case 'invalid':
      await reschedule(deps, one, { outcome: answer.kind, detail: answer.detail })
      return 'failed'
    case 'not_found_yet':
      // A refused key may be accepted again at any moment, and only a request of that key shows it.
      await reschedule(deps, one, {
        outcome: answer.reason === 'quota' ? 'not_found_yet' : 'postponed',
        detail: answer.reason,
        ...(answer.reason === 'unauthorized' && { rhythm: 'steady' }),
      })
      return 'postponed'
    case 'unauthorized':
    case 'rate_limited':
    case 'postponed':
      if (one.is_unknown && !one.is_extra && answer.kind === 'postponed' && answer.reason === 'quota') {
        // Given back, it would stay due before requests that the provider knows. Made-up ids may be many.
        await reschedule(deps, one, { outcome: 'not_found_yet', detail: answer.reason })
        return 'postponed'
      }
      await giveBack(deps, one, answer)
      return answer.kind === 'rate_limited' ? 'rateLimited' : 'givenBack'
    default:
      return answer satisfies never
  }
}

type Answered = { one: Due; keyName: string; report: Report }

/** A lock of another transaction on the row is waited for a few times, since the call is already spent. */
const locked = { tries: 3, baseMs: 1000, capMs: 5000 }

/** Lands a result. If Postgres refuses it, the request is polled again later and others continue. */
async function landOrPostpone(deps: ReconcilerDeps, answered: Answered): Promise<PollEnd> {
  const { one } = answered
  for (let tries = 1; ; tries += 1) {
    try {
      await landAnswer(deps, answered)
      return 'landed'
    } catch (error) {
      const isLocked = metALock(error)
      if (isLocked && tries < locked.tries && !deps.cut.aborted) {
        await delay(jitteredPauseMs(tries, locked, Math.random), undefined, { signal: deps.cut }).catch(() => {})
        continue
      }
      if (!isAboutTheRow(error)) throw error
      deps.logger.error(
        { err: error, request_id: one.request_id },
        'a result could not be landed, it is polled again later',
      )
      // A locked row cannot get another time. It is polled again after its lease ends.
      if (!isLocked || (await lockedRequests(deps.db, [one.request_id])).size === 0)
        await reschedule(deps, one, { outcome: 'landing_failed', detail: postgresMessage(error) })
      return 'failed'
    }
  }
}

async function landAnswer(deps: ReconcilerDeps, { one, keyName, report }: Answered): Promise<void> {
  const landing = landingOfReport(report, {
    fetched: true,
    sourceName: one.source_name,
    keyName,
    environment: deps.keys().byName.get(keyName)?.environment,
    delivery: undefined,
    mediaHosts: deps.mediaHosts,
  })
  const outcome =
    (await land(deps.db, [landing], { now: deps.time(), environments: environmentsOf(deps.keys()) })).get(
      one.request_id,
    ) ?? 'raced'
  // Landing does not write a known result again, so the schedule must be ended here.
  if (outcome === 'no_effect' || outcome === 'contradiction') await endPolling(deps, one)
  deps.logger.info(
    { request_id: one.request_id, key_name: keyName, status: landing.status, outcome },
    'request reconciled',
  )
  deps.onProcessed({ landing, outcome, receivedAt: undefined })
}
