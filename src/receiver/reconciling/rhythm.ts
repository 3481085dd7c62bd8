import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { doublingPauseMs } from '../../wire/backoff.ts'
import type { PollOutcome } from '../domain/poll-outcomes.ts'
import * as schema from '../domain/schema.ts'

const requests = columnsOf(schema.requests)

/**
 * The pause after the first poll that did not complete a landed result: the provider has the whole of it at any moment.
 */
const firstCompletionMs = 2000
const completing = { baseMs: firstCompletionMs, capMs: 300_000 }
/** A request that no key knows, or whose result cannot be read or stored, hardly changes. */
const slowing = { baseMs: 30_000, capMs: 3_600_000 }
const slowingLanded = { baseMs: firstCompletionMs, capMs: 3_600_000 }
/** A request that runs is polled again after a fifth of the time that it has been running for. */
const runningShare = 0.2
const running = { minMs: 5000, maxMs: 300_000 }
/** A pause is between so much of itself and the whole. */
const jitterFrom = { running: 0.8, others: 0.5 }

/** `steady`: it is only a matter of time. `slowing`: it hardly changes. */
export type Rhythm = 'steady' | 'slowing'

export function rhythmOf(outcome: PollOutcome): Rhythm {
  return outcome === 'running' || outcome === 'unreachable' ? 'steady' : 'slowing'
}

/** What decides when a request is polled again: its rhythm, the number of its last poll, and its age. */
export type Polled = { rhythm: Rhythm; polls: number; ageSeconds: number }

/**
 * When a request (the row `r`) is polled again, in the rhythm of what is waited for:
 *
 * - that it ends, while it runs, or when the provider gave no answer: by its age
 * - the whole of a result that has landed: after 2 s, 4 s and so on, up to 5 min, but however
 *   often it was polled while it ran, after twice the time since it landed at most
 * - what the provider does not know, or answers in a way that we cannot use: later each time, up to an hour
 */
export function nextPollAfter({ rhythm, polls, ageSeconds }: Polled, now: SQL, random: () => number): SQL {
  const isSteady = rhythm === 'steady'
  const jitter = jitterFrom.others + random() * (1 - jitterFrom.others)
  const runningMs =
    Math.min(ageSeconds * 1000 * runningShare, running.maxMs) *
    (jitterFrom.running + random() * (1 - jitterFrom.running))
  const openMs = isSteady ? Math.max(running.minMs, runningMs) : doublingPauseMs(polls, slowing) * jitter
  const landedMs = doublingPauseMs(polls, isSteady ? completing : slowingLanded) * jitter
  // The row tells whether the result has landed: its webhook may have come during the poll.
  const sinceLanding = sql`greatest(${interval(completing.baseMs)}, 2 * (${now} - r.${requests.landed_at}))`
  const landed = isSteady ? sql`least(${interval(landedMs)}, ${sinceLanding})` : interval(landedMs)
  return sql`${now} + case when r.${requests.landed_at} is null then ${interval(openMs)} else ${landed} end`
}

function interval(ms: number): SQL {
  return sql`make_interval(secs => ${Math.round(ms) / 1000})`
}
