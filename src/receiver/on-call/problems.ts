import type { FailingRole } from '../../platform/loop.ts'
import { isConnectionLost } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import { placeOf, severities, type Problem, issueOf } from '../domain/problem.ts'
import { defaultSourceName } from '../domain/source.ts'
import type { NotifyQueue } from '../gauges/notify-queue.ts'
import type { OverduePolls } from '../gauges/overdue.ts'
import type { Cause } from '../queries/causes.ts'
import { readWithin } from '../queries/deadline.ts'
import type { FailingSource } from '../queries/trouble.ts'
import { oldSeconds } from '../upkeep/minutes.ts'
import { causeClause } from './cause-words.ts'
import { clockTime, count, duration, sentences } from './figures.ts'
import { balanceProblems, keyProblems, refusedSubmitsProblem, stuckSubmitsProblems } from './key-problems.ts'
import { readNumbers, type Numbers, type ProblemsOptions } from './numbers.ts'
import { pollText } from './poll-words.ts'
import { refusalProblems, wrongTokensProblem } from './refusal-problems.ts'

/** If more than 5 % of acknowledgements are slower, that is a problem. After 10 s, an attempt of the provider fails. */
export const slowAckMs = 2000

export async function readProblems(db: Database, options: ProblemsOptions): Promise<Problem[]> {
  return problemsOf(await readWithin(db, (tx) => readNumbers(tx, options)))
}

/** The problems of this moment, worst first, one for each root cause. */
export function problemsOf(numbers: Numbers): Problem[] {
  const all = [
    ...refusalProblems(numbers),
    ...slowness(numbers),
    ...inboxProblem(numbers),
    ...feedProblem(numbers.unsequencedSeconds),
    ...notifyQueueProblem(numbers.notifyQueue),
    ...pollingProblem(numbers),
    ...numbers.keys.flatMap((key) => keyProblems(key, numbers)),
    ...balanceProblems(numbers),
    ...refusedSubmitsProblem(numbers),
    ...stuckSubmitsProblems(numbers),
    ...rolesAtFault(numbers).flatMap(roleProblem),
    ...contradictionProblems(numbers),
    ...foreignMediaProblem(numbers),
    ...numbers.ofSlices,
    ...numbers.parked.map(parkedProblem),
    ...wrongTokensProblem(numbers),
    ...strangersProblem(numbers),
  ]
  // The sort is stable: problems of the same severity keep the order above.
  return all.toSorted((a, b) => severities.indexOf(a.severity) - severities.indexOf(b.severity))
}

/** The failing roles whose failure is not already a problem of a slice. */
function rolesAtFault({ failingRoles = [], ofSlices }: Numbers): FailingRole[] {
  const known = new Set(ofSlices.map(({ cause }) => cause))
  const codeOf = (error: unknown) => (error instanceof Error && 'code' in error ? String(error.code) : '')
  return failingRoles.filter(({ error }) => !known.has(codeOf(error)))
}

function slowness({ recent: { ack_p95_ms: ackMs } }: Numbers): Problem[] {
  if (ackMs === null || ackMs < slowAckMs) return []
  const text = `Responses are slow: 5 % of webhooks wait longer than ${(ackMs / 1000).toFixed(1)} s for Postgres. After 10 s the provider counts a failed attempt.`
  return [{ severity: 'warning', text, cause: 'slow_acknowledgement', href: '/deliveries?view=arrivals' }]
}

function inboxProblem({ inbox: { pending, oldestSeconds, trouble } }: Numbers): Problem[] {
  if (pending === 0 || oldestSeconds <= oldSeconds) return []
  const waits = count(pending, 'accepted delivery waits', 'accepted deliveries wait')
  const last = trouble === null ? '' : ` Last failure: ${trouble}.`
  const text = `${waits} to be processed, the oldest for ${duration(oldestSeconds)}.${last}`
  return [{ severity: 'critical', text, cause: 'inbox_old', count: pending, href: '/deliveries?state=pending' }]
}

/** A failing provider or a silent reconciler makes requests overdue, which is then no problem of its own. */
function pollingProblem(numbers: Numbers): Problem[] {
  const failing = numbers.failingSources.map((source, at) => failingSourceProblem(numbers, source, at === 0))
  if (failing.length > 0) return [...failing, ...reconcilerProblem(numbers)]
  if (numbers.reconciler.silent) return reconcilerProblem(numbers)
  const missing = missingWebhooks(numbers)
  return [...reconcilerProblem(numbers), ...(missing.length > 0 ? missing : overdueProblem(numbers))]
}

/** The problem that only polls brought the last results. Webhooks that failed here are another problem. */
function missingWebhooks(numbers: Numbers): Problem[] {
  const { webhooks, webhookPublicUrl, recent, failing, giveUps, overdue, now } = numbers
  const { landed, reported, newest, late_seconds, last_webhook_at } = webhooks
  const anyFailed = failing.length > 0 || giveUps.length > 0
  // Fewer results without a webhook may be an accident.
  if (landed < 5 || reported > 0 || anyFailed) return []
  const late =
    late_seconds === null
      ? 'Results are late'
      : `These ${landed} results landed up to ${duration(late_seconds)} after their end`
  const arrived =
    last_webhook_at === null
      ? 'Webhooks that arrive are for other requests.'
      : `The last webhook for such a request came at ${clockTime(last_webhook_at, now)}; webhooks since then are for other requests.`
  const text = sentences(
    `No webhook came for the last ${landed} results of requests that were submitted here: polls brought them.`,
    overdue === 0 ? '' : `${overdueText(overdue)}.`,
    last_webhook_at === null && recent.arrivals === 0 ? '' : arrived,
    `${late}, and none is lost.`,
    'Check that WEBHOOK_PUBLIC_URL leads to this receiver.',
    'Send a sample there, which lands as the result of a new request. If none appears, the address probably leads elsewhere.',
    `Run this with the receiver's keys in the environment: mediadock trigger ok --url ${webhookPublicUrl}`,
  )
  return [{ severity: 'warning', text, cause: 'webhooks_missing', count: landed, ...placeOf(newest) }]
}

function overdueText(overdue: number): string {
  return count(overdue, 'request is overdue', 'requests are overdue')
}

function reconcilerProblem({
  reconciler: { silent, silent_after_seconds, last_run },
  overdue,
  now,
}: Numbers): Problem[] {
  if (silent) {
    const since = last_run
      ? `since ${clockTime(last_run.ended_at, now)}`
      : `for more than ${duration(silent_after_seconds ?? 0)}`
    const text = sentences(
      `The reconciler has not run ${since}. Overdue requests that were never polled wait for it.`,
      overdue === 0 ? '' : `${overdueText(overdue)}.`,
    )
    return [{ severity: 'critical', text, cause: 'reconciler_silent', count: overdue, href: '/reconciler' }]
  }
  if (last_run?.outcome !== 'error') return []
  const text = `The last run of the reconciler failed: ${last_run.error ?? 'see the log'}. The next run tries again.`
  return [{ severity: 'warning', text, cause: 'reconciler_failed', href: '/reconciler' }]
}

/** The counts cover all sources, so only the first problem shows them. */
function failingSourceProblem(
  { reconciler: { backlog }, now, ...numbers }: Numbers,
  { source_name: name, failing_since: since, detail }: FailingSource,
  isFirst: boolean,
): Problem {
  const isOther = name !== defaultSourceName
  const overdue = isFirst ? numbers.overdue : 0
  const waiting = isFirst ? backlog.incomplete : 0
  const submits = numbers.waitingSubmits
  const wait = submits === 0 ? 'submits wait' : count(submits, 'submit waits', 'submits wait')
  // Longer than a restart of the provider.
  const isLong = now.getTime() - Date.parse(since) >= 5 * 60_000
  const incomplete = `${backlog.incomplete_capped ? 'at least ' : ''}${count(waiting, 'result is', 'results are')} not complete`
  const effects = [overdue === 0 ? '' : overdueText(overdue), waiting === 0 ? '' : incomplete]
    .filter(Boolean)
    .join(' and ')
  const text = sentences(
    `The ${isOther ? `source ${name}` : 'provider'} has given no usable answer since ${clockTime(since, now)}${detail === null ? '' : ` (${detail})`}.`,
    effects === '' ? '' : `${effects.slice(0, 1).toUpperCase()}${effects.slice(1)}.`,
    'Polls go on: one about every 5 s, and each request within 5 minutes. The first usable answer ends this alarm.',
    `Check ${isOther ? 'its' : "the provider's"} status,`,
    `and that ${isOther ? 'the URL of its API' : `GENERATION_API_URL (${numbers.generationApiUrl})`} is reachable.`,
    isOther ? '' : `Nothing is lost: results wait at the provider, and ${wait} here. A submit expires after 23.5 h.`,
  )
  return {
    severity: isLong || overdue > 0 ? 'critical' : 'warning',
    text,
    cause: isOther ? `provider_unreachable:${name}` : 'provider_unreachable',
    href: '/reconciler',
    count: overdue + waiting,
  }
}

function contradictionProblems({ contradictions: { open, decided, last_open, last_decided } }: Numbers): Problem[] {
  const undecided = "the stored result, which stands until the provider's own result decides."
  const settled = "the provider's own result, which stands."
  const both = [
    { severity: 'warning', cause: 'contradiction', count: open, last: last_open, stands: undecided },
    { severity: 'notice', cause: 'contradiction_decided', count: decided, last: last_decided, stands: settled },
  ] as const
  return both.flatMap(({ last, stands, ...about }) => {
    if (about.count === 0) return []
    const text = `${count(about.count, 'webhook contradicts', 'webhooks contradict')} ${stands}`
    const isOne = about.count === 1 && last !== null
    return [{ ...about, text, href: isOne ? `/requests/${last}` : '/requests?contradiction=true' }]
  })
}

function foreignMediaProblem({ foreignMedia: { requests, hosts } }: Numbers): Problem[] {
  if (requests.length === 0) return []
  const some = hosts.length > 3 ? `${hosts.slice(0, 3).join(', ')} and others` : hosts.join(', ')
  const text = sentences(
    `MEDIA_HOSTS does not list ${some}, where media of ${count(requests.length, 'recent result', 'recent results')} are.`,
    'The results landed with these links, but the console does not show the media and the archive does not copy them.',
    "If the provider's media are there, add the host to MEDIA_HOSTS and restart each receiver.",
    'If not, do not open the links, and ask the provider.',
  )
  return [{ severity: 'warning', text, cause: 'foreign_host', count: requests.length, ...placeOf(requests) }]
}

function strangersProblem({ strangers, recent: { minutes } }: Numbers): Problem[] {
  if (strangers <= 0) return []
  const text = `${count(strangers, 'arrival', 'arrivals')} with a missing or wrong signature in ${minutes} minutes. All were refused, and none that is kept names a known request: nothing to do.`
  const href = '/deliveries?view=arrivals&outcome=refused'
  return [{ severity: 'notice', text, cause: 'strangers', count: strangers, href }]
}

function overdueProblem({ overdue, overduePolls, fetchRatePerMinute, reconciler: { backlog } }: Numbers): Problem[] {
  if (overdue === 0) return []
  const minutes = count(Math.max(1, backlog.minutes), 'minute', 'minutes')
  const within = backlog.due_capped ? `${minutes} or more` : `about ${minutes}`
  const polling = backlog.due === 0 ? '' : `All due polls are made in ${within}.`
  const results = overdue === 1 ? 'its result' : 'their results'
  const known = `${overdueText(overdue)}: neither a webhook nor a poll has brought ${results}.`
  const isQuota = overduePolls?.outcome === 'postponed' && overduePolls.detail === 'quota'
  const text = isQuota
    ? sentences(
        known,
        'Polls wait, because the calls that polls may use in this minute are used up.',
        'Calls that are left are kept for submits.',
        polling,
        `Nothing is lost. If the number grows, raise FETCH_RATE_PER_MINUTE (now ${fetchRatePerMinute}),`,
        'or FETCH_RATE_PER_ACCOUNT_PER_MINUTE if Keys shows the account at its limit.',
      )
    : sentences(known, lastPolls(overdue, overduePolls), polling)
  return [{ severity: 'warning', text, cause: 'overdue', count: overdue, href: '/requests?overdue=true' }]
}

function lastPolls(overdue: number, polls: OverduePolls | undefined): string {
  if (polls === undefined) return ''
  const { outcome, detail, requests } = polls
  if (outcome === null) return overdue === 1 ? 'It waits for its first poll.' : `${requests} wait for their first poll.`
  const which = overdue === 1 ? 'Last poll' : requests >= overdue ? 'Last poll of each' : `Last poll of ${requests}`
  return `${which}: ${pollText(outcome, detail)}.`
}

function parkedProblem({ reason, count: parked, errors = [] }: Cause): Problem {
  const href = `/parked?${new URLSearchParams({ reason }).toString()}`
  const about = { severity: 'warning', cause: `parked:${reason}`, count: parked, href } as const
  const many = `${count(parked, 'delivery', 'deliveries')} parked in the last hour`
  const [newest, ...others] = errors
  if (newest === undefined) return { ...about, text: `${many}: ${causeClause(reason)}.` }
  const model = newest.model === null ? '' : ` of ${newest.model}`
  const more = others.length === 0 ? '' : `${count(others.length, 'other error', 'other errors')} besides.`
  const what = `${many}: Postgres refused the ${parked === 1 ? 'result' : 'results'}${model}.`
  const which =
    parked === 1 ? 'The error' : newest.count === parked ? `The same error ${parked} times, the newest` : 'Newest error'
  // A single delivery may be at fault itself. Several without a landed one mean that none of the model can land.
  const severity = newest.model !== null && newest.count > 1 && !newest.landed_since ? 'critical' : 'warning'
  const kept = `The ${parked === 1 ? 'delivery is' : 'deliveries are'} kept. Fix the cause, then replay.`
  const text = sentences(what, `${which}: ${newest.message}.`, more, landingExtent(newest), kept)
  return { ...about, severity, text }
}

/** Says whether other results of the model still land. */
export function landingExtent({ model, count: failed, landed_since }: NonNullable<Cause['errors']>[number]): string {
  if (model === null) return ''
  if (landed_since)
    return `Other results of ${model} land: look at what differs in ${failed === 1 ? 'this one' : 'these'}.`
  const it = failed === 1 ? 'it' : 'the first of these'
  return `No result of ${model} has landed since ${it} arrived.`
}

/** The problem of changes without a position, which no reader of the feed sees. */
export function feedProblem(unsequencedSeconds: number): Problem[] {
  if (unsequencedSeconds <= oldSeconds) return []
  const waits = `the oldest change has waited ${duration(unsequencedSeconds)} for its position`
  const text = `The feed has stopped: ${waits}. Readers and subscriptions get nothing new until it continues.`
  return [{ severity: 'critical', text, cause: 'feed_stalled', href: '/subscriptions' }]
}

/** The problem of a NOTIFY queue that is too full. Landing and the feed continue, but readers must poll. */
export function notifyQueueProblem({ usage, notifies, holder }: NotifyQueue): Problem[] {
  if (notifies) return []
  const state = `Postgres's NOTIFY queue is ${Math.round(usage * 100)} % full, so readers are not notified`
  const why = 'and find changes by polling. A session keeps a transaction open after LISTEN.'
  const text = `${state} ${why} ${howToEnd(holder)}`
  return [{ severity: 'warning', text, cause: 'notify_queue_full', href: issueOf('notify_queue_full') }]
}

function howToEnd(holder: NotifyQueue['holder']): string {
  if (holder === null)
    return 'Find the oldest open transaction in pg_stat_activity, as a role with pg_monitor, and end that session.'
  const role = holder.role === null ? '' : `, role ${holder.role}`
  const whose = `The oldest open transaction belongs to process ${holder.pid}${role}.`
  return `${whose} End it: select pg_terminate_backend(${holder.pid}).`
}

/** The problem of a failing role. A lost connection to Postgres is no problem of a role: watch.ts reports it. */
export function roleProblem({ role, failures, seconds, error }: FailingRole): Problem[] {
  // One or two failed rounds may be a lock or a restart.
  if (failures < 3 || isConnectionLost(error)) return []
  const failed = `has failed ${failures} times in a row, for ${duration(seconds)}: ${failureWords(error)}`
  const text = `The background role ${role} of a receiver ${failed}. It is retried. That receiver logs each failure.`
  const cause = `role_failing:${role}`
  return [{ severity: 'warning', text, cause, affected: [role], href: issueOf(cause) }]
}
