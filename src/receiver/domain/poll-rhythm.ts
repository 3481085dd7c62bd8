import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { doublingPauseMs } from '../../wire/backoff.ts'
import type { Rhythm } from './poll-endings.ts'
import * as schema from './schema.ts'

const requests = columnsOf(schema.requests)

/**
 * The pause after the first poll that did not complete a landed result: the provider may have the full result any
 * moment.
 */
const firstCompletionMs = 2000
const completing = { baseMs: firstCompletionMs, capMs: 300_000 }
/** For a request that no key knows, or whose result cannot be read or stored: the answer rarely changes. */
const slowing = { baseMs: 30_000, capMs: 3_600_000 }
const slowingLanded = { baseMs: firstCompletionMs, capMs: 3_600_000 }
/** A running request is polled again after a fifth of the time since it was tracked. */
const runningShare = 0.2
const running = { minMs: 5000, maxMs: 300_000 }
/** The lower bound of a jittered pause, as a share of the pause. */
const jitterFrom = { running: 0.8, others: 0.5 }

/** The number of the poll, and the age of its request when it was claimed. */
type EndedPoll = { polls: number; seconds_since_tracked: number }

/**
 * SQL: when the request (the row `r`) is polled next, with jitter. poll-endings.ts lists the rhythm of each ending.
 *
 *   rhythm     a request that has not landed           a landed request
 *   steady     after a fifth of its age, 5 s to 5 min  after 2 s, doubled with each poll up to 5 min
 *   slowing    after 30 s, doubled up to an hour       after 2 s, doubled up to an hour
 *
 * A landed request is polled after at most twice the time since it landed, however many times it was polled before.
 */
export function nextPollAfter(poll: EndedPoll, rhythm: Rhythm, now: SQL): SQL {
  const { polls, seconds_since_tracked: secondsSinceTracked } = poll
  const isSteady = rhythm === 'steady'
  const jitter = jitterFrom.others + Math.random() * (1 - jitterFrom.others)
  const runningMs =
    Math.min(secondsSinceTracked * 1000 * runningShare, running.maxMs) *
    (jitterFrom.running + Math.random() * (1 - jitterFrom.running))
  const openMs = isSteady ? Math.max(running.minMs, runningMs) : doublingPauseMs(polls, slowing) * jitter
  const landedMs = doublingPauseMs(polls, isSteady ? completing : slowingLanded) * jitter
  // The row shows whether the result has landed, since its webhook may have arrived during the poll.
  const sinceLanding = sql`greatest(${interval(completing.baseMs)}, 2 * (${now} - r.${requests.landed_at}))`
  const landed = sql`least(${interval(landedMs)}, ${sinceLanding})`
  return sql`${now} + case when r.${requests.landed_at} is null then ${interval(openMs)} else ${landed} end`
}

/**
 * SQL: the time of the next extra poll of the request `r` that a delivery causes. At most one a minute, since the
 * holder of one secret can sign any number of deliveries, and anyone can name any number of jobs.
 */
export const nextExtraPoll = (now: SQL) => sql`greatest(${now}, r.${requests.polled_at} + interval '60 s')`

function interval(ms: number): SQL {
  return sql`make_interval(secs => ${Math.round(ms) / 1000})`
}
