import type { JudgedReport } from './judge.ts'
import { isMismatch, type Mismatch } from './refine-rulings.ts'

/** What the whole statement needs to know to change deliveries, if the row of the request is still the judged one. */
export type Effects = {
  /** The end that stands after the landing, and whether the provider has confirmed it. */
  standing_status: string | null
  standing_confirmed: boolean
  /** All deliveries of the request are compared with that end, not only the one that lands. */
  compares_all: boolean
  /** The reason for which the delivery is flagged and parked. */
  parks: Mismatch | null
  /** A single replay ends the parking. */
  unparks: boolean
}

export function effectsOf(report: JudgedReport): Effects {
  const { via, ruling, status, was_status: was } = report
  const isWritten = ruling === 'landed' || ruling === 'agreed'
  const isParked = isMismatch(ruling)
  return {
    standing_status: isWritten ? status : was,
    standing_confirmed: report.was_confirmed || (via === 'poll' && isWritten),
    compares_all: isWritten && (via === 'poll' || report.changes_environment || was !== status),
    parks: isParked ? ruling : null,
    unparks: via === 'replay' && !isParked,
  }
}
