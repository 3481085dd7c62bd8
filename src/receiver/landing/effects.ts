import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { JudgedReport } from './judge.ts'
import { rulings, type Ruling } from './rules.ts'

/**
 * The ruling, or `raced`: the row appeared, changed or was deleted at the same moment. The result was not written; try
 * again.
 */
export const landingOutcomes = [...rulings, 'raced'] as const
export type LandingOutcome = (typeof landingOutcomes)[number]

type OutcomeEffects = {
  /** The row of the request. `versioned`: a row that is not confirmed, ended or not, gets a new version and nothing else. */
  row: 'written' | 'versioned' | 'kept'
  /** An unconfirmed row gets an extra poll. */
  extraPoll: boolean
  /**
   * `ended`: it leaves the inbox, with a row in `attempts` unless its first claim gave the request its first end.
   * `parked`: likewise, and it is flagged and parked for the outcome. `deleted`: without a row in `attempts`.
   * `waits`: it stays in the inbox.
   */
  delivery: 'ended' | 'parked' | 'deleted' | 'waits'
  /** The feed gets a change, and readers a NOTIFY. */
  feed: boolean
}

/**
 * The effects of each outcome on the request, the delivery and the feed. Besides these: the verdict of rules.ts decides
 * the values of a written row and its next poll. flags-sql.ts decides flags, by the facts of effectsOf() and the rows of
 * other deliveries.
 */
const landingEffects: Record<LandingOutcome, OutcomeEffects> = {
  // An extra poll follows if a delivery of the request is parked for its key: afterLanding() of poll-schedule.ts.
  landed: { row: 'written', extraPoll: false, delivery: 'ended', feed: true },
  agreed: { row: 'written', extraPoll: false, delivery: 'ended', feed: false },
  no_effect: { row: 'versioned', extraPoll: false, delivery: 'ended', feed: false },
  contradiction: { row: 'versioned', extraPoll: true, delivery: 'ended', feed: false },
  key_mismatch: { row: 'versioned', extraPoll: true, delivery: 'parked', feed: false },
  source_mismatch: { row: 'kept', extraPoll: false, delivery: 'parked', feed: false },
  discarded: { row: 'kept', extraPoll: false, delivery: 'deleted', feed: false },
  raced: { row: 'kept', extraPoll: false, delivery: 'waits', feed: false },
}

/** SQL: the list of the outcomes with these effects. */
export function outcomesThat(has: (effects: OutcomeEffects) => boolean): SQL {
  const names = Object.entries(landingEffects).filter(([, effects]) => has(effects))
  return sql.raw(names.map(([name]) => `'${name}'`).join(', '))
}

/** The outcomes that park the delivery. */
export const parking = outcomesThat(({ delivery }) => delivery === 'parked')

/** The rulings that write the row of the request. */
export const writing = outcomesThat(({ row }) => row === 'written')

/** The facts by which the general statement changes deliveries, if the row of the request is still the judged one. */
export type Effects = {
  /** The end that stands after the landing, or null; and whether the provider has confirmed it. */
  standing_status: string | null
  standing_confirmed: boolean
  /** All deliveries of the request are compared with that end, not only the one that lands. */
  compares_all: boolean
  /** The reason for which the delivery is flagged and parked. */
  parks: Ruling | null
  /** A single replay ends the parking. */
  unparks: boolean
}

export function effectsOf(report: JudgedReport): Effects {
  const { via, ruling, status, was_status: was } = report
  const { row, delivery } = landingEffects[ruling]
  const isWritten = row === 'written'
  const isParked = delivery === 'parked'
  return {
    standing_status: isWritten ? status : report.was_landed ? was : null,
    standing_confirmed: report.was_confirmed || (via === 'poll' && isWritten),
    compares_all: isWritten && (via === 'poll' || report.changes_environment || was !== status),
    parks: isParked ? ruling : null,
    unparks: via === 'replay' && !isParked,
  }
}
