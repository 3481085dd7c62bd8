import { doublingPauseMs, webhookAttempts } from '../../wire/backoff.ts'

/** The spec's delivery rule 3: pauses doubling from 30 s, and a dispatch run every 30 s. */
const pause = { baseMs: 30_000, capMs: 3_600_000 }

export type Seen = {
  /** Attempts that arrived here and failed. */
  attempts: number
  lastSeenAt: Date
  now: Date
}

export type GiveUpClock = {
  /** How many of the six attempts were made, including those that must have failed before they reached us. */
  attemptsSpent: number
  /** The earliest time of the next attempt; undefined if none is left. */
  nextAttemptAt: Date | undefined
  /** The earliest time of the sixth attempt, past or future. */
  lastAttemptAt: Date
  givenUp: boolean
}

/**
 * Estimates what the provider does with a webhook that failed here. Only attempts that arrive are visible. An attempt
 * that is more than a dispatch run overdue counts as made.
 */
export function giveUpClock({ attempts, lastSeenAt, now }: Seen): GiveUpClock {
  let spent = Math.min(Math.max(1, attempts), webhookAttempts)
  let last = lastSeenAt.getTime()
  // Two dispatch runs later, an attempt that did not arrive has been made.
  while (spent < webhookAttempts && last + doublingPauseMs(spent, pause) + 60_000 < now.getTime()) {
    last += doublingPauseMs(spent, pause)
    spent += 1
  }
  const next = spent < webhookAttempts ? new Date(last + doublingPauseMs(spent, pause)) : undefined
  let end = last
  for (let left = spent; left < webhookAttempts; left += 1) end += doublingPauseMs(left, pause)
  return { attemptsSpent: spent, nextAttemptAt: next, lastAttemptAt: new Date(end), givenUp: next === undefined }
}
