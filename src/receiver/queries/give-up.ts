import { doublingPauseMs } from '../../wire/backoff.ts'

/**
 * The spec's delivery rules 2 and 3: six attempts in all, the pauses between them double from 30 s, and dispatch runs
 * every 30 s.
 */
export const maxAttempts = 6
const pause = { baseMs: 30_000, capMs: 3_600_000 }
const dispatchMs = 30_000

export type Seen = {
  /** Attempts that arrived here and failed. */
  attempts: number
  lastSeenAt: Date
  now: Date
}

export type GiveUpClock = {
  /** Of the six; with those that must have come to nothing elsewhere since the last that arrived here. */
  attemptsSpent: number
  /** The earliest; undefined once none is left. */
  nextAttemptAt: Date | undefined
  /** When the last of the six comes, at the earliest, or came. */
  lastAttemptAt: Date
  givenUp: boolean
}

/**
 * What the provider does with a webhook that failed here. We see only what
 * arrives: an attempt that is a whole dispatch tick overdue was spent, too.
 */
export function giveUpClock({ attempts, lastSeenAt, now }: Seen): GiveUpClock {
  let spent = Math.min(Math.max(1, attempts), maxAttempts)
  let last = lastSeenAt.getTime()
  while (spent < maxAttempts && last + doublingPauseMs(spent, pause) + 2 * dispatchMs < now.getTime()) {
    last += doublingPauseMs(spent, pause)
    spent += 1
  }
  const next = spent < maxAttempts ? new Date(last + doublingPauseMs(spent, pause)) : undefined
  let end = last
  for (let left = spent; left < maxAttempts; left += 1) end += doublingPauseMs(left, pause)
  return { attemptsSpent: spent, nextAttemptAt: next, lastAttemptAt: new Date(end), givenUp: next === undefined }
}
