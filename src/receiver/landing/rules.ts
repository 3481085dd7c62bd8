import type { Environment } from '../domain/environment.ts'
import { environmentOfKey, type Keys } from '../domain/keys.ts'
import type { ReportToLand } from './report-to-land.ts'

/*
 * The rules that decide what becomes of a webhook or a result of the provider. They are pure functions: judge() of
 * judge.ts reads the rows for them, and a landing statement writes a verdict only if the row of the request is
 * still the one that was judged. Some rulings need more than that row: see refine-rulings.ts. docs/orders.md lists every
 * case.
 */

/** The row of a request as it stands. */
export type RequestRow = {
  /** Changes with each write of the row. */
  version: string
  source_name: string | null
  status: string
  has_landed: boolean
  media_complete: boolean
  is_confirmed: boolean
  key_name: string | null
  /** `tracked`: a submit or the API has named the key. `landed`: a landing or a hint. Null: an INSERT, or no key is named. */
  key_source: 'tracked' | 'landed' | null
  /** The environment of the request, as tracking, a hint or the provider's result stored it. */
  request_environment: Environment | undefined
  /** The environment of the key that signed or fetched the result, or of the request if that key's is unknown. */
  result_environment: Environment | undefined
  /** The column `source`. */
  ended_by: 'webhook' | 'reconciler' | null
  cost: string | null
  next_poll_at: string | null
  /** The next poll is due, or under way. */
  is_poll_due: boolean
}

/**
 * The decision about a report. It becomes the outcome of the landing, unless the row of the request changes meanwhile.
 *
 * - `landed`: the row becomes terminal or complete, or is overruled
 * - `agreed`: the provider's result confirms what readers have. It is confirmed, without a change for readers
 * - `no_effect`: the request has ended in this state already; the content is not compared. Also for a delivery that was
 *   flagged for its key, once the request is confirmed
 * - `contradiction`: another terminal state stands. The delivery is flagged, and the end of the row stays
 * - `key_mismatch`: signed with a key of the other environment, or of an unknown one, and parked
 * - `source_mismatch`: the request belongs to another source than the delivery, which is parked
 * - `discarded`: a mismatch, but `maxParkedForRequest` deliveries of the request are parked for it already. It is
 *   deleted
 */
export const rulings = [
  'landed',
  'agreed',
  'no_effect',
  'contradiction',
  'key_mismatch',
  'source_mismatch',
  'discarded',
] as const
export type Ruling = (typeof rulings)[number]
/** The rulings of this file. Only refine-rulings.ts makes the others. */
type RulingByRow = Exclude<Ruling, 'agreed' | 'discarded'>

/**
 * The ruling, and the values of the row that is written if the ruling is `landed` or `agreed`. `written` of parts-sql.ts
 * and afterLanding() of poll-schedule.ts complete the row. `changes_environment` also decides flags of other deliveries
 * (flags-sql.ts), and `key_source` which keys a poll tries (poll-claims.ts) and what tracking may correct (tracking.ts).
 */
export type Verdict = {
  ruling: RulingByRow
  /** The report is of another environment than the request or its result had. */
  changes_environment: boolean
  key_name: string | null
  key_source: RequestRow['key_source']
  request_environment: Environment | undefined
  result_environment: Environment | undefined
  ended_by: RequestRow['ended_by']
  cost: number | string | undefined
  /** The request is polled at once. Otherwise its next poll is `next_poll_at`, or there is none. */
  is_polled_now: boolean
  next_poll_at: string | null
}

/** The environments that the rules compare. Undefined where one is unknown. */
type Known = {
  /** Of the request, or undefined while it is undecided. */
  ofRequest: Environment | undefined
  /** Of the key that signed or fetched the result in the row. */
  ofResult: Environment | undefined
  /** Of the key in the row, as it is configured now. */
  ofKey: Environment | undefined
}

/** Judges a report by the row of its request, which is undefined if there is none. */
export function verdictOn(report: ReportToLand, row: RequestRow | undefined, keys: Keys): Verdict {
  const known = row ? knownOf(row, keys) : { ofRequest: undefined, ofResult: undefined, ofKey: undefined }
  return { ruling: rulingOn(report, row, known), ...rowToWrite(report, row, known) }
}

/**
 * The environment of a request is the first of these that exists:
 *
 * 1. that of the key to which the provider gave the result
 * 2. that which tracking stored, or a hint that made the row
 * 3. that of the key that tracking named, if it is configured
 *
 * Without any, it is undecided. Then a live key outranks a sandbox key: the holder of a sandbox secret can sign any
 * request id, but must not replace what a live key signed.
 */
function knownOf(row: RequestRow, keys: Keys): Known {
  const key = row.key_name === null ? undefined : environmentOfKey(keys, row.key_name)
  const tracked = row.key_source === 'landed' ? undefined : key
  return { ofRequest: row.request_environment ?? tracked, ofResult: row.result_environment, ofKey: key }
}

/** The first rule that applies decides. */
function rulingOn(report: ReportToLand, row: RequestRow | undefined, known: Known): RulingByRow {
  // The report makes the row.
  if (row === undefined) return 'landed'
  // A source speaks only for its own requests.
  if (row.source_name !== report.source_name) return 'source_mismatch'
  if (report.via !== 'poll' && !maySpeak(report, row, known)) return 'key_mismatch'
  // A request without an end takes this one.
  if (!row.has_landed) return 'landed'
  // The provider overrules a webhook, and so does a key of another environment that the rules above let through.
  if (!row.is_confirmed && (report.via === 'poll' || differs(report.environment, known.ofResult))) return 'landed'
  // Otherwise the end in the row stays.
  return row.status === report.status ? 'no_effect' : 'contradiction'
}

/** Returns true if the key that signed a webhook may speak for the request. */
function maySpeak(report: ReportToLand, row: RequestRow, { ofRequest, ofResult, ofKey }: Known): boolean {
  // A sandbox key must not replace what a live key signed.
  if (ofRequest === undefined) return report.environment !== 'sandbox' || ofResult !== 'live'
  // A key speaks only for requests of its environment.
  if (report.environment !== undefined) return report.environment === ofRequest
  // A key of unknown environment cannot prove that it may speak. For a confirmed request that does no harm: the webhook
  // can only repeat or contradict its end. Otherwise it must be the key that the request was tracked with.
  if (row.is_confirmed) return true
  const isOwnKey = row.key_name === null || row.key_name === report.reporting_key
  return isOwnKey && ofKey === undefined
}

function rowToWrite(report: ReportToLand, row: RequestRow | undefined, known: Known): Omit<Verdict, 'ruling'> {
  const isPoll = report.via === 'poll'
  const changesEnvironment = differs(report.environment, known.ofResult) || differs(report.environment, known.ofRequest)
  const isNewEnd = !row?.has_landed || row.status !== report.status || changesEnvironment
  const isNamedByLanding = row?.key_source === 'landed'
  const ownEnvironment = known.ofKey ?? (isNamedByLanding ? known.ofResult : undefined)
  const replacesKey = row === undefined || row.key_name === null || differs(report.environment, ownEnvironment)
  const environment = report.environment ?? known.ofRequest
  return {
    changes_environment: changesEnvironment,
    key_name: replacesKey ? report.reporting_key : row.key_name,
    key_source: replacesKey ? 'landed' : row.key_source,
    request_environment: isPoll ? environment : row?.request_environment,
    result_environment: environment,
    ended_by: isNewEnd ? (isPoll ? 'reconciler' : 'webhook') : row.ended_by,
    cost: report.cost ?? (changesEnvironment ? undefined : (row?.cost ?? undefined)),
    is_polled_now: !report.media_complete || (!isPoll && (changesEnvironment || needsConfirmation(report, row, known))),
    // A hint made the row. Its poll may be under way, and may end without an answer, so the poll stays.
    next_poll_at: !isPoll && row && !row.has_landed && isNamedByLanding ? row.next_poll_at : null,
  }
}

/** Returns true if the provider is to be asked at once whether the webhook is right. */
function needsConfirmation(report: ReportToLand, row: RequestRow | undefined, known: Known): boolean {
  // A sandbox key, or an unknown one, proves too little.
  if (report.environment !== 'live' && known.ofRequest === undefined) return true
  // This landing would clear the time of the due poll, which must not be lost: it may end without an answer.
  if (row?.is_poll_due) return true
  // Another key signed than the one that tracking named.
  const isTracked = row !== undefined && row.key_source !== 'landed'
  return isTracked && known.ofKey !== undefined && row.key_name !== report.reporting_key
}

/** Returns true if both environments are known, and are not the same. */
function differs(one: Environment | undefined, other: Environment | undefined): boolean {
  return one !== undefined && other !== undefined && one !== other
}
