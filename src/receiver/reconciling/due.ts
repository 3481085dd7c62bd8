import { turnOf } from '../../platform/fair-share.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { later } from '../../platform/postgres/time.ts'
import { createTimedSet } from '../../platform/timed-set.ts'
import type { Keys } from '../domain/keys.ts'

/*
 * Finds requests whose polls are due, as SQL for the claims of poll-claims.ts. Gauges and pages count with the same
 * conditions.
 *
 * Each request waits in the poll queue of its key. Keys have separate budgets, so a key without calls delays no other
 * key. Requests without a key name, and those of unknown keys, are in one queue named `''`, because anyone can invent key
 * names. The poller takes requests of known keys and those without a key name (duePolls). Those of unknown keys wait for
 * the runs of the reconciler (duePollsOfRuns).
 */

/** The inputs of overdue: the present time, a literal for pages, and STUCK_AFTER_SECONDS. */
export type StuckAfter = { now: Date | SQL; stuckAfterSeconds: number }

/**
 * SQL condition on a row `r` of `requests`: it is overdue, that is, it was tracked too long ago and has not ended. It
 * matches the index requests_unended.
 */
export function isOverdue({ now, stuckAfterSeconds }: StuckAfter): SQL {
  const at = now instanceof Date ? sql`${now.toISOString()}::timestamptz` : now
  return sql`(r.landed_at is null and r.tracked_at <= ${later(at, -stuckAfterSeconds)})`
}

/** SQL: the poll queue of a row of `requests`. `knownKeys` is an array of names. queueOf() is the same. */
function queueOfRow(knownKeys: SQL): SQL {
  return sql`case when key_name = any(${knownKeys}) then key_name else '' end`
}

/** Bounded, since services and senders can invent key names. */
const maxUnknownKeys = 1000

/**
 * SQL for WITH RECURSIVE: `unknown_key`, the names of unknown keys in requests that are still to be polled. `knownKeys`
 * is an array of names. The walk goes from name to name in the index requests_by_key, so its cost does not depend on the
 * number of waiting requests.
 */
export function unknownKeys(knownKeys: SQL): SQL {
  const waits = sql`next_poll_at is not null and next_poll_at < 'infinity'`
  return sql`
  walked (key_name) as (
    (select coalesce(key_name, '') from mediadock.requests where ${waits} and coalesce(key_name, '') > ''
      order by coalesce(key_name, '') limit 1)
    union all
    select next.key_name from walked cross join lateral (
      select coalesce(key_name, '') as key_name from mediadock.requests
      where ${waits} and coalesce(key_name, '') > walked.key_name
      order by coalesce(key_name, '') limit 1) as next
  ),
  unknown_key as (select key_name from walked where key_name <> all(${knownKeys}) limit ${maxUnknownKeys})`
}

/**
 * SQL: `queue`, the poll queues of these keys, each with the end of its key's last outage. The queue `''`, of requests
 * without a key name, has the latest end of all.
 */
function pollQueues(keyNames: readonly string[]): SQL {
  return sql`
    queue as (
      select k.key_name, case when k.key_name = '' then (select max(recovered_at) from mediadock.call_budgets)
          else (select recovered_at from mediadock.call_budgets b where b.key_name = k.key_name limit 1)
        end as recovered_at
      from unnest(${sql.param([...keyNames])}::text[]) as k (key_name) limit ${keyNames.length}
    )`
}

/**
 * SQL condition on a row of `requests`: it has a time for its next poll, and the key name of `queue`. It matches the
 * index requests_by_key, so it finds rows of an unknown key by that name alone: see unknownKeys().
 */
export const isScheduledForKey = sql`next_poll_at is not null and coalesce(key_name, '') = queue.key_name`

/**
 * SQL condition on a row of `requests`: the last poll failed because of an outage of the key of `queue` that is over.
 * The request is then due, whatever its next poll says, but not if it was given up and only an extra poll failed. A poll
 * that is still under way then is made again. It matches the index requests_held_up.
 */
export const isHeldUp = sql`(next_poll_at < 'infinity' and poll_outcome in ('unreachable', 'postponed')
    and polled_at < queue.recovered_at)`

/** How many requests to find, and the poll queues to leave out: see createRestingQueues(). */
export type Wanted = { limit: number; resting: ReadonlySet<string>; restingExtra?: ReadonlySet<string> }

export type Finding = Wanted & {
  now: SQL
  keys: Keys
  /** The requests that callers of this process wait for. */
  awaited: readonly string[]
  stuckAfterSeconds: number
  /** A condition on the rows `r`. */
  only: SQL
}

/**
 * SQL for WITH: `due`, requests whose polls are due, round-robin by key. Within a key they come by rank, then the
 * longest due first:
 *
 *   rank  part        requests                                                 index
 *   0     awaited     due, and a caller of this process waits for the result   the primary key
 *   1     ended       due, and ended: their results are completed first        requests_incomplete
 *   2     scheduled   due                                                      requests_by_key
 *   2     held_up     held up by an outage that is over                        requests_held_up
 *   3     extra       their extra poll is due                                  requests_doubted
 *
 * So requests that no key knows do not delay the completion of results. Each part is read by an index, so the cost does
 * not depend on the number of due requests.
 */
export function duePolls({ now, keys, awaited, only, limit, resting, restingExtra = new Set() }: Finding): SQL {
  const names = keys.all.map(({ name }) => name)
  const knownKeys = sql`${sql.param(names)}::text[]`
  const queues = ['', ...names].filter((name) => !resting.has(name))
  const isTime = sql`next_poll_at <= ${now}`
  /** Up to `limit` rows of each queue, in the order of an index. */
  const ofQueues = (condition: SQL, order: SQL) => sql`
      select queue.key_name, in_queue.* from queue cross join lateral (
        select request_id, least(next_poll_at, ${now}) as due_at from mediadock.requests r
        where ${isScheduledForKey} and ${condition} and ${only} order by ${order} limit ${limit}
        for update skip locked
      ) as in_queue`
  return sql`
    ${pollQueues(queues)},
    scheduled as (${ofQueues(isTime, sql`next_poll_at`)}),
    ended as (${ofQueues(sql`landed_at is not null and ${isTime}`, sql`next_poll_at`)}),
    held_up as (${ofQueues(isHeldUp, sql`polled_at`)}),
    -- Conditions that match only the index of the ids: a plan made for empty tables could read all due requests.
    awaited as (
      select coalesce(key_name, '') as key_name, request_id, next_poll_at as due_at from mediadock.requests r
      where request_id = any(${sql.param([...awaited])}::uuid[]) and coalesce(${isTime}, false)
        and array_position(${sql.param(queues)}::text[], coalesce(key_name, '')) is not null and ${only}
      limit ${limit} for update skip locked
    ),
    extra as (
      select ${queueOfRow(knownKeys)} as key_name, request_id, doubt_poll_at as due_at from mediadock.requests r
      where doubt_poll_at <= ${now} and confirmed_at is null
        and ${queueOfRow(knownKeys)} <> all(${sql.param([...restingExtra])}::text[]) and ${only}
      order by doubt_poll_at limit ${limit} for update skip locked
    ),
    found as (
      select distinct on (request_id) * from (
        select *, false as is_extra, 0 as rank from awaited
        union all select *, false, 1 from ended
        union all select *, false, 2 from scheduled
        union all select *, false, 2 from held_up
        union all select *, true, 3 from extra
      ) as ways
      order by request_id, rank
    ),
    due as (
      select *, row_number() over (order by turn, rank, due_at) as place
      from (select *, ${turnOf(sql`key_name`, sql`rank, due_at`)} as turn from found) as in_turns
      order by place limit ${limit}
    )`
}

/**
 * SQL for WITH RECURSIVE, for runs of the reconciler alone: `due`, overdue requests that have no time for a poll yet,
 * usually since they were never polled, and due requests of unknown keys; oldest first. The index skips due requests of known keys.
 */
export function duePollsOfRuns({ now, keys, stuckAfterSeconds, only, limit, resting }: Finding): SQL {
  const knownKeys = sql`${sql.param(keys.all.map(({ name }) => name))}::text[]`
  const rests = sql`${sql.param([...resting])}::text[]`
  return sql`
    ${unknownKeys(knownKeys)},
    without_time as (
      select request_id, tracked_at as due_at from mediadock.requests r
      where ${isOverdue({ now, stuckAfterSeconds })} and r.next_poll_at is null
        and ${queueOfRow(knownKeys)} <> all(${rests}) and ${only}
      order by tracked_at limit ${limit} for update skip locked
    ),
    -- The rows are selected before any is locked, since up to the limit is read for each name.
    oldest as materialized (
      select in_queue.* from unknown_key as queue cross join lateral (
        select request_id, next_poll_at as due_at from mediadock.requests r
        where ${isScheduledForKey} and next_poll_at <= ${now} and ${only}
        order by next_poll_at limit ${limit}
      ) as in_queue
      where '' <> all(${rests}) order by in_queue.due_at limit ${limit}
    ),
    of_unknown_keys as (
      select request_id, next_poll_at as due_at from mediadock.requests r
      where request_id = any(array(select request_id from oldest)) and next_poll_at <= ${now} and ${only}
      for update skip locked
    ),
    due as (
      select *, false as is_extra, row_number() over (order by due_at) as place
      from (select * from without_time union all select * from of_unknown_keys) as ways order by place limit ${limit}
    )`
}

export type RestingQueues = ReturnType<typeof createRestingQueues>

/**
 * Keeps the poll queues whose key has no call left, for `ms` each, so that claims leave them out. Extra polls have
 * fewer calls than the others, so a queue rests apart for them.
 */
export function createRestingQueues({ clock, keys }: { clock: () => Date; keys: () => Keys }, ms: number) {
  const [scheduled, extra] = [createTimedSet(clock, ms), createTimedSet(clock, ms)]
  return {
    /** The resting queues, for a claim. */
    queues: () => ({ resting: scheduled.present(), restingExtra: extra.present() }),
    /** True while the key of a request has no call. */
    isResting: (keyName: string) => scheduled.present().has(queueOf(keys(), keyName)),
    /** Lets the queue of a poll without a call rest. */
    add: (one: { key_name: string | null; is_extra: boolean }) =>
      (one.is_extra ? extra : scheduled).add(queueOf(keys(), one.key_name)),
  }
}

/** The same as queueOfRow(). */
function queueOf(keys: Keys, keyName: string | null): string {
  return keyName !== null && keys.byName.has(keyName) ? keyName : ''
}
