import type { JudgedReport } from './judge.ts'
import type { Ruling } from './rules.ts'
import { isMismatch } from './second-look.ts'

/** The changes of a landing besides the row of the request, if that row is still the one that was judged. */
export type Effects = {
  /** The end that stands after the landing, and whether the provider has confirmed it. */
  standing_status: string | null
  standing_confirmed: boolean
  /** The landing changes for all deliveries of the request whether they contradict its end. */
  concerns_all: boolean
  /** The reason for which the delivery is flagged and parked. */
  parks: Ruling | null
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
    concerns_all: isWritten && (via === 'poll' || report.changes_environment || was !== status),
    parks: isParked ? ruling : null,
    unparks: via === 'replay' && !isParked,
  }
}
