import type { FailingRole } from '../../platform/loop.ts'
import type { Limited } from '../../platform/pages/guess-limit.ts'
import { severities, type Problem } from '../domain/problem.ts'
import type { NotifyQueue } from '../feeding/notify-queue.ts'
import type { Cause } from '../queries/causes.ts'
import { maxGiveUps, type GiveUp } from '../queries/give-ups.ts'
import type { KeyState } from '../queries/keys.ts'
import type { ReconcilerState } from '../queries/reconciler.ts'
import type { Refusals } from '../queries/refusals.ts'
import type { Contradictions, ProviderState } from '../queries/trouble.ts'
import { oldSeconds } from '../upkeep/minutes.ts'
import { causeClause } from './cause-words.ts'
import { clockTime, count, duration, percent } from './figures.ts'
import { feedProblem, notifyQueueProblem, roleProblem } from './role-problems.ts'
import { wrongTokensProblem } from './wrong-tokens-problem.ts'

/** Arrivals of one outcome and reason in the last minutes, and since when there have been such. */
export type Failing = {
  outcome: 'refused' | 'unavailable'
  reason: string | null
  arrivals: number
  since: string | null
  /** Something authentic shows that they may be the provider's. */
  vouched: boolean
}

export type Numbers = {
  now: Date
  recent: { minutes: number; arrivals: number; failing: readonly Failing[]; ackP95Ms: number | null }
  inbox: { pending: number; oldestSeconds: number; trouble?: string | undefined }
  /** What was parked in the last hour. */
  parked: readonly Cause[]
  /** How long the oldest change has waited for its position in the feed; 0 while none waits. */
  unsequencedSeconds: number
  notifyQueue: NotifyQueue
  failingRoles: readonly FailingRole[]
  overdue: number
  reconciler: Pick<ReconcilerState, 'silent' | 'silent_after_seconds' | 'last_run' | 'backlog'>
  keys: readonly KeyState[]
  giveUps: readonly GiveUp[]
  strangers: Refusals['strangers'] & { arrivals: number }
  provider: ProviderState
  contradictions: Contradictions
  /** The problems of the optional capabilities. */
  ofSlices?: readonly Problem[]
  /** The addresses whose wrong tokens this process answers 429. */
  limited?: readonly Limited[] | undefined
}

/** The provider gives up on an answer after 10 s. */
export const slowAckMs = 2000
const refusedShare = 0.02
const soonMinutes = 10

/** What is wrong now, the worst first, in words that say what it means; an empty list is good news. */
export function problemsOf(numbers: Numbers): Problem[] {
  const all = [
    ...numbers.recent.failing.flatMap((failing) => failingProblem(failing, numbers)),
    ...slowness(numbers),
    ...inboxProblem(numbers),
    ...feedProblem(numbers.unsequencedSeconds),
    ...notifyQueueProblem(numbers.notifyQueue),
    ...giveUpProblems(numbers),
    ...reconcilerProblem(numbers),
    ...providerProblem(numbers),
    ...numbers.keys.flatMap((key) => keyProblems(key, numbers.now)),
    ...numbers.failingRoles.flatMap(roleProblem),
    ...overdueProblem(numbers),
    ...contradictionProblems(numbers),
    ...(numbers.ofSlices ?? []),
    ...numbers.parked.map(parkedProblem),
    ...wrongTokensProblem(numbers.limited),
    ...strangersProblem(numbers),
  ]
  // A stable sort: of the same severity, the order above stays.
  return all.toSorted((a, b) => severities.indexOf(a.severity) - severities.indexOf(b.severity))
}

function failingProblem(
  { outcome, reason, arrivals, since, vouched }: Failing,
  { recent, strangers, now }: Numbers,
): Problem[] {
  // What strangers send is no part of how it goes with the provider.
  const share = arrivals / Math.max(1, arrivals, recent.arrivals - strangers.arrivals)
  const why = reason === null ? 'for an unknown reason' : inWords(reason)
  const begun = since === null ? `in the last ${recent.minutes} minutes` : `since ${clockTime(since, now)}`
  const text = `${percent(share)} of arrivals ${outcome === 'refused' ? 'refused' : 'not acknowledged'} ${begun}: ${why}.`
  const cause = `${outcome}:${reason ?? 'unknown'}`
  if (outcome === 'unavailable')
    return [
      {
        severity: 'critical',
        text,
        cause,
        count: arrivals,
        href: href('/deliveries', { view: 'arrivals', outcome, reason }),
      },
    ]
  if (!vouched) {
    const doubt = `${text} Nothing authentic arrived in this time: either the secret of the provider's key is missing here, or somebody is probing.`
    return [{ severity: 'warning', text: doubt, cause, count: arrivals, href: href('/parked', { reason }) }]
  }
  const severity =
    share >= refusedShare && reason === 'no_matching_secret' ? 'critical' : share >= refusedShare ? 'warning' : 'notice'
  return [{ severity, text, cause, count: arrivals, href: href('/parked', { reason }) }]
}

function slowness({ recent: { ackP95Ms } }: Numbers): Problem[] {
  if (ackP95Ms === null || ackP95Ms < slowAckMs) return []
  const text = `Acknowledging is slow: 5 % of deliveries wait longer than ${(ackP95Ms / 1000).toFixed(1)} s for Postgres; after 10 s the provider counts a failed attempt.`
  return [{ severity: 'warning', text, cause: 'slow_acknowledgement', href: '/deliveries?view=arrivals' }]
}

function inboxProblem({ inbox: { pending, oldestSeconds, trouble } }: Numbers): Problem[] {
  if (pending === 0 || oldestSeconds <= oldSeconds) return []
  const text = `${count(pending, 'accepted delivery waits', 'accepted deliveries wait')} to be processed, the oldest for ${duration(oldestSeconds)}.${trouble === undefined ? '' : ` Last failure: ${trouble}.`}`
  return [{ severity: 'critical', text, cause: 'inbox_old', count: pending, href: '/deliveries?state=pending' }]
}

function giveUpProblems({ giveUps, now }: Numbers): Problem[] {
  // What has landed by other ways needs nothing any more.
  const open = giveUps.filter(
    ({ request_status }) =>
      request_status === null || request_status === 'IN_QUEUE' || request_status === 'IN_PROGRESS',
  )
  const lost = open.filter(({ given_up }) => given_up)
  const [first, ...others] = open.filter(
    ({ given_up, last_attempt_at }) => !given_up && Date.parse(last_attempt_at) - now.getTime() <= soonMinutes * 60_000,
  )
  // No more of them are read.
  const some = giveUps.length < maxGiveUps ? '' : 'at least '
  const problems: Problem[] = []
  if (first) {
    const left = (Date.parse(first.last_attempt_at) - now.getTime()) / 1000
    const many = others.length + 1
    const text = `The provider is about to give up on ${some}${count(many, 'webhook', 'webhooks')} that failed here, the first in ${duration(Math.max(0, left))}.`
    problems.push({ severity: 'critical', text, cause: 'giving_up', count: many, href: '/parked' })
  }
  if (lost.length > 0) {
    const text = `The provider has given up on ${some}${count(lost.length, 'webhook', 'webhooks')} that failed here: verify the quarantine again, or let the reconciler poll.`
    problems.push({ severity: 'warning', text, cause: 'given_up', count: lost.length, href: '/parked' })
  }
  return problems
}

function reconcilerProblem({ reconciler: { silent, silent_after_seconds, last_run }, now }: Numbers): Problem[] {
  const problems: Problem[] = []
  if (silent) {
    const since = last_run
      ? `since ${clockTime(last_run.ended_at, now)}`
      : `for more than ${duration(silent_after_seconds ?? 0)}`
    const text = `The reconciler has been silent ${since}: what the webhooks miss is not polled.`
    problems.push({ severity: 'critical', text, cause: 'reconciler_silent', href: '/reconciler' })
  } else if (last_run?.outcome === 'error') {
    problems.push({
      severity: 'warning',
      text: `The last run of the reconciler failed: ${last_run.error ?? 'see the log'}.`,
      cause: 'reconciler_failed',
      href: '/reconciler',
    })
  }
  return problems
}

/** What is wrong with the provider for so long is more than a restart of theirs. */
const longMs = 5 * 60_000

function providerProblem({ provider: { failing_since, detail }, reconciler: { backlog }, now }: Numbers): Problem[] {
  if (failing_since === null) return []
  const severity = now.getTime() - Date.parse(failing_since) >= longMs ? 'critical' : 'warning'
  const [incomplete, least] = [backlog.incomplete, backlog.incomplete_capped ? 'At least ' : '']
  const behind =
    incomplete === 0 ? '' : ` ${least}${count(incomplete, 'result waits', 'results wait')} to be completed.`
  const text = `The provider has given no usable answer since ${clockTime(failing_since, now)}${detail === null ? '' : ` (${detail})`}.${behind} It is retried automatically until it answers.`
  return [{ severity, text, cause: 'provider_unreachable', href: '/reconciler', count: backlog.incomplete }]
}

function contradictionProblems({ contradictions: { open, decided } }: Numbers): Problem[] {
  const problems: Problem[] = []
  const where = '/deliveries?flag=contradiction'
  if (open > 0) {
    const text = `${count(open, 'webhook contradicts', 'webhooks contradict')} the stored result, which stays until the provider's own result decides.`
    problems.push({ severity: 'warning', text, cause: 'contradiction', count: open, href: where })
  }
  if (decided > 0) {
    const text = `${count(decided, 'webhook', 'webhooks')} of the last hour contradicted the provider's own result, which stands.`
    problems.push({ severity: 'notice', text, cause: 'contradiction_decided', count: decided, href: where })
  }
  return problems
}

/** Somebody who tries: nothing of it is trusted, and nothing is lost by it. */
function strangersProblem({
  strangers: { arrivals, senders, networks, top },
  recent: { minutes },
}: Numbers): Problem[] {
  if (arrivals <= 0) return []
  const from = `${count(senders, 'address', 'addresses')} in ${count(networks, 'network', 'networks')}`
  const most = top.map(({ sender, arrivals: n }) => `${sender} (${n})`).join(', ')
  const whence = senders === 0 ? '' : `, from ${from}: ${most}`
  const text = `${count(arrivals, 'request', 'requests')} without a valid signature in ${minutes} minutes${whence}. All refused, none trusted: nothing to do.`
  return [
    {
      severity: 'notice',
      text,
      cause: 'strangers',
      count: arrivals,
      affected: top.map(({ sender }) => sender),
      href: '/deliveries?view=arrivals&outcome=refused',
    },
  ]
}

function keyProblems(key: KeyState, now: Date): Problem[] {
  const problem = (severity: Problem['severity'], cause: string, text: string): Problem[] => [
    { severity, cause: `${cause}:${key.name}`, text, href: '/keys', affected: [key.name] },
  ]
  if (key.blocked_until !== null) {
    const until = clockTime(key.blocked_until, now)
    if (key.blocked_reason === 'unauthorized') {
      return problem(
        'critical',
        'key_refused',
        `The API key of ${key.name} is not accepted (401): it makes no calls until ${until}, when one call tries it again. If it stays refused, replace it with a valid key.`,
      )
    }
    return problem(
      'warning',
      'key_blocked',
      `The provider asked for a pause: no calls with the key ${key.name} until ${until}.`,
    )
  }
  if (key.configured && !key.retired && key.quota_left === 0) {
    return problem(
      'warning',
      'quota_spent',
      `The quota of the key ${key.name} is used up: ${count(key.calls, 'call', 'calls')} in the last minute.`,
    )
  }
  if (!key.still_matches || key.last_match_at === null) return []
  const last = clockTime(key.last_match_at, now)
  return key.configured
    ? problem(
        'notice',
        'retired_key_matches',
        `The retired key ${key.name} still signs deliveries, last at ${last}: keep its secret.`,
      )
    : problem(
        'notice',
        'removed_key_matched',
        `The key ${key.name} signed deliveries until ${last} and is no longer configured: what it signs now is refused.`,
      )
}

function overdueProblem({ overdue, reconciler: { backlog } }: Numbers): Problem[] {
  if (overdue === 0) return []
  const polling =
    backlog.due === 0
      ? ''
      : ` Polling what is due takes ${backlog.due_capped ? 'at least' : 'about'} ${count(Math.max(1, backlog.minutes), 'minute', 'minutes')}.`
  const text = `${count(overdue, 'request is', 'requests are')} overdue: neither a webhook nor a poll has brought ${overdue === 1 ? 'its result' : 'their results'}.${polling}`
  return [{ severity: 'warning', text, cause: 'overdue', count: overdue, href: '/requests?overdue=true' }]
}

function parkedProblem({ reason, count: parked }: Cause): Problem {
  const text = `${count(parked, 'delivery', 'deliveries')} parked in the last hour: ${inWords(reason)}.`
  return { severity: 'warning', text, cause: `parked:${reason}`, count: parked, href: href('/parked', { reason }) }
}

function inWords(reason: string): string {
  return causeClause(reason).replaceAll('_', ' ')
}

function href(path: string, query: Record<string, string | null>): string {
  const given = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) if (value !== null) given.set(name, value)
  return given.size === 0 ? path : `${path}?${given.toString()}`
}
