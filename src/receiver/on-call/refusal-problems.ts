import { maxPageItems } from '../domain/page-limits.ts'
import { issueOf, type Problem } from '../domain/problem.ts'
import type { GiveUp } from '../queries/give-ups.ts'
import { causeClause } from './cause-words.ts'
import { count, duration, exactTime, sentences } from './figures.ts'
import type { Failing, Numbers } from './numbers.ts'

type Group = Pick<Failing, 'outcome' | 'reason'> & { failing?: Failing | undefined; giveUps: readonly GiveUp[] }

/** One problem for each reason for which arrivals fail now, or failed and were not accepted since. */
export function refusalProblems(numbers: Numbers): Problem[] {
  return groupsOf(numbers).map((group) => {
    const { failing, outcome, reason, giveUps } = group
    const own = giveUps.filter(({ request_status: status }) => status !== null)
    const keys = [...new Set(own.flatMap(({ request_key_name: name }) => (name === null ? [] : [name])))]
    const effect = effectOf(group, numbers)
    const isForeign = outcome === 'refused' && own.length === 0
    const text = isForeign
      ? sentences(effect, doubtOf(group))
      : sentences(effect, ownText(group, own.length, keys), deadlineOf(group, numbers.now))
    return {
      severity: severityOf(group, { isForeign, numbers }),
      text,
      cause: `${outcome}:${reason ?? 'unknown'}`,
      count: failing?.arrivals ?? giveUps.length,
      href: hrefOf(group),
      ...(keys.length > 0 && { affected: keys }),
    }
  })
}

/** Returns false if the request of the webhook has ended: its result came in another way. */
function isOpen({ request_status }: GiveUp): boolean {
  return request_status === null || request_status === 'IN_QUEUE' || request_status === 'IN_PROGRESS'
}

function groupsOf({ failing: failingNow, giveUps }: Numbers): Group[] {
  const keyOf = ({ outcome, reason }: Pick<Failing, 'outcome' | 'reason'>) => `${outcome}/${reason ?? ''}`
  const waiting = Map.groupBy(giveUps.filter(isOpen), keyOf)
  const failing = failingNow.map((one) => ({ ...one, failing: one, giveUps: waiting.get(keyOf(one)) ?? [] }))
  const known = new Set(failingNow.map(keyOf))
  const past = [...waiting].flatMap(([key, [first, ...others]]) => {
    if (known.has(key) || first === undefined) return []
    return [{ outcome: first.outcome, reason: first.reason, giveUps: [first, ...others] }]
  })
  return [...failing, ...past]
}

/** The arrivals of the provider. Strangers do not count. */
function totalOf({ arrivals }: Failing, { recent, strangers }: Numbers): number {
  return Math.max(1, arrivals, recent.arrivals - strangers)
}

/** Fewer may be the tries of a stranger at the address of a known sender. */
const enoughToJudge = 20

/**
 * Anyone can post from the address of a known sender. So what is refused is critical only for a request that waits
 * here, or where no secret matches many: webhooks for services that track nothing name no request here.
 */
function severityOf(
  group: Group,
  { isForeign, numbers }: { isForeign: boolean; numbers: Numbers },
): Problem['severity'] {
  const { failing, reason, giveUps } = group
  if (isOfOutage(group, numbers)) return giveUps.some(({ given_up }) => given_up) ? 'warning' : 'notice'
  // Adding a secret and verifying again takes less than this.
  const soon = numbers.now.getTime() + 10 * 60_000
  const isLostSoon = giveUps.some((one) => !one.given_up && Date.parse(one.last_attempt_at) <= soon)
  if (!isForeign) return failing || isLostSoon ? 'critical' : 'warning'
  const share = failing === undefined ? 0 : failing.arrivals / totalOf(failing, numbers)
  const isKeyMissing = reason === 'no_matching_secret' && failing?.vouched === true && share >= 0.1
  if (isKeyMissing && failing.arrivals >= enoughToJudge) return 'critical'
  // A single scanner or replayed sample stays below this share.
  const isMany = share >= 0.02
  return isMany || giveUps.length > 0 ? 'warning' : 'notice'
}

/** Returns true if these arrivals failed before the end of an outage of Postgres, which is an issue of its own. */
function isOfOutage({ outcome, reason }: Group, { giveUps, outageEndedAt }: Numbers): boolean {
  if (outcome !== 'unavailable' || outageEndedAt === null) return false
  const ofGroup = giveUps.filter((one) => one.outcome === outcome && one.reason === reason)
  // The newest is listed for each reason whose arrivals are listed at all.
  return ofGroup.length > 0 && ofGroup.every(({ last_seen }) => Date.parse(last_seen) <= Date.parse(outageEndedAt))
}

function effectOf(group: Group, numbers: Numbers): string {
  const { failing, outcome, reason, giveUps } = group
  const why = reason === null ? 'for an unknown reason' : causeClause(reason)
  const what = outcome === 'refused' ? 'refused' : 'answered 503'
  if (failing === undefined) {
    const some = giveUps.length < maxPageItems ? '' : 'At least '
    return `${some}${count(giveUps.length, 'webhook was', 'webhooks were')} ${what} and not accepted since: ${why}.`
  }
  const total = totalOf(failing, numbers)
  const were = failing.arrivals === 1 ? 'was' : 'were'
  return `${failing.arrivals} of ${count(total, 'arrival', 'arrivals')} in the last ${numbers.recent.minutes} minutes ${were} ${what}${lastOf(group, numbers.now)}: ${why}.`
}

/** An outage may be over while the provider has yet to send its webhooks again. */
function lastOf({ outcome, giveUps }: Group, now: Date): string {
  const last = giveUps
    .map(({ last_seen }) => last_seen)
    .toSorted()
    .at(-1)
  return outcome === 'unavailable' && last !== undefined ? `, the last at ${exactTime(last, now)}` : ''
}

function doubtOf({ failing, reason, giveUps }: Group): string {
  const isOne = (failing?.arrivals ?? giveUps.length) === 1
  return sentences(
    isOne
      ? 'It names no request that waits here: a stranger may be sending it.'
      : 'They name no request that waits here: a stranger may be sending them.',
    reason === 'no_matching_secret'
      ? `If the provider has a key whose secret is missing here, add it, then verify ${isOne ? 'it' : 'them'} again.`
      : '',
  )
}

function ownText({ reason, giveUps }: Group, named: number, keys: readonly string[]): string {
  if (named === 0) return ''
  const isOneKey = keys.length === 1
  const which = keys.length === 0 ? '' : ` of ${isOneKey ? 'the key' : 'the keys'} ${keys.join(', ')}`
  const all = named === giveUps.length ? 'All ' : ''
  const name =
    named === 1
      ? `1 is for our own request${which}, which waits for its result`
      : `${all}${named} are for our own requests${which}, which wait for their results`
  if (reason !== 'no_matching_secret' || keys.length === 0) return `${name}.`
  return `${name}: ${isOneKey ? "the key's secret was" : "the keys' secrets were"} probably replaced at the provider.`
}

function deadlineOf({ reason, giveUps }: Group, now: Date): string {
  const [first, ...others] = giveUps.filter(({ given_up }) => !given_up)
  const past = giveUps.filter(({ given_up }) => given_up).length
  const lost = past === 0 ? '' : `By the provider's schedule, ${past} will not be sent again.`
  if (first === undefined) return lost === '' ? '' : `${lost} The reconciler polls their tracked requests.`
  const seconds = Math.max(0, (Date.parse(first.last_attempt_at) - now.getTime()) / 1000)
  const them = others.length === 0 ? 'it' : 'them'
  const after =
    reason === 'no_matching_secret'
      ? `Add the key with its new secret beside the old one, then verify ${them} again. The quarantine keeps ${them}.`
      : 'If that fails too, only the poll of a tracked request brings the result.'
  return sentences(
    `The provider's final attempt${others.length === 0 ? '' : ' for the first of these'} is in ${duration(seconds)}.`,
    after,
    lost,
  )
}

function hrefOf({ outcome, reason }: Group): string {
  const query = new URLSearchParams(reason === null ? {} : { reason })
  if (outcome === 'refused') return query.size === 0 ? '/parked' : `/parked?${query.toString()}`
  const filters = new URLSearchParams({ view: 'arrivals', outcome })
  return `/deliveries?${filters.toString()}${query.size === 0 ? '' : `&${query.toString()}`}`
}

/** Wrong tokens that this process answers with 429. The text names the first address, `affected` up to 20. */
export function wrongTokensProblem({ limited = [], now }: Pick<Numbers, 'limited' | 'now'>): Problem[] {
  const [first, ...others] = limited
  if (first === undefined) return []
  const from =
    others.length === 0
      ? first.address
      : `${first.address} and ${count(others.length, 'other address', 'other addresses')}`
  const until = exactTime(new Date(Math.max(...limited.map((one) => one.until.getTime()))).toISOString(), now)
  const last = first.asked === undefined ? '' : ` The last call was ${first.asked}.`
  const who = others.length === 0 ? `A client at ${from} calls` : `Clients at ${from} call`
  const text = sentences(
    `${who} with a wrong INTERNAL_TOKEN, perhaps an old one.${last}`,
    others.length === 0 ? 'If it is yours, give it the current token.' : 'Give those that are yours the current token.',
    `${others.length === 0 ? 'Its' : 'Their'} further wrong tokens are answered 429 until ${until}.`,
    'Callers with the right token are not affected.',
  )
  // Bounded, because an issue keeps its addresses in one row.
  const affected = limited.slice(0, 20).map(({ address }) => address)
  const cause = 'wrong_tokens'
  return [{ severity: 'warning', text, cause, count: limited.length, affected, href: issueOf(cause) }]
}
