import { z } from 'zod'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import { isUsable, type Keys } from '../domain/keys.ts'
import { maxCounted } from '../domain/limits.ts'
import { pollLease } from '../domain/poll-schedule.ts'
import { isHeldUp, isOverdue, isScheduledForKey, unknownKeys } from '../reconciling/due.ts'
import { callBudgets, completionsPerMinute } from './call-budgets.ts'

export const backlogSchema = z
  .object({
    due: z.int().describe('Requests that are due for a poll, counted up to 10,000 per key.'),
    minutes: z.int().describe("How long their polls take within the keys' budget; a minimum if due_capped is true."),
    // Those that are lost are not polled, and not counted.
    incomplete: z.int().describe('Results that have landed and are not complete yet, counted in the same way.'),
    // At the submit rate of the last minute.
    per_minute: z.int().describe('How many results all keys can complete in a minute.'),
    // Null if none is incomplete, or while one waits for a key whose calls fail.
    complete_by: z.iso
      .datetime()
      .nullable()
      .describe('The earliest time at which all can be complete; null if unknown.'),
    due_capped: z.boolean().describe('True if more are due than were counted.'),
    incomplete_capped: z.boolean().describe('True if more are incomplete than were counted.'),
  })
  .meta({ id: 'Backlog' })

export type BacklogOptions = { now: Date; stuckAfterSeconds: number; fetchRatePerMinute: number; keys: Keys }

/** Counts what the reconciler still has to poll, and estimates the time. Must run in a transaction (readWithin). */
export async function readBacklog(
  tx: Executor,
  { now, stuckAfterSeconds, fetchRatePerMinute, keys }: BacklogOptions,
): Promise<z.infer<typeof backlogSchema>> {
  const at = sql`${now.toISOString()}::timestamptz`
  const knownKeys = sql`${sql.param(keys.all.map(({ name }) => name))}::text[]`
  // Requests that are being polled are not due.
  const isFree = pollLease.isFree(at)
  // Forces the order of the index: the planner underestimates the rows and would collect and sort all of them.
  await tx.execute(sql`select set_config('enable_bitmapscan', 'off', true)`)
  const scheduled = await tx.execute<{ key_name: string; due: number; incomplete: number }>(sql`
    with recursive ${unknownKeys(knownKeys)},
    queue as (select key_name from unnest(array_append(${knownKeys}, '')) as k (key_name)
      union all select key_name from unknown_key)
    select queue.key_name, ${countInQueue(sql`next_poll_at <= ${at} and ${isFree}`, sql`next_poll_at`)} as due,
      ${countInQueue(sql`landed_at is not null and not media_complete and next_poll_at < 'infinity'`, sql`next_poll_at`)} as incomplete
    from queue`)
  const withoutTime = await tx.execute<{ key_name: string; due: number }>(sql`
    select key_name, count(*)::int as due from (
      select coalesce(key_name, '') as key_name from mediadock.requests r
      where ${isOverdue({ now, stuckAfterSeconds })} and r.next_poll_at is null and ${isFree}
      order by tracked_at limit ${maxCounted + 1}) as found
    group by key_name`)
  // Runs claim these before their time, since the outage that held them up is over.
  const heldUp = await tx.execute<{ key_name: string; due: number }>(sql`
    select queue.key_name, ${countInQueue(sql`${isHeldUp} and next_poll_at > ${at} and ${isFree}`, sql`polled_at`)} as due
    from (select b.key_name, b.recovered_at from mediadock.call_budgets b where b.recovered_at is not null
      union all select '', max(b.recovered_at) from mediadock.call_budgets b) as queue (key_name, recovered_at)`)
  await tx.execute(sql`select set_config('enable_bitmapscan', 'on', true)`)
  const due = [...scheduled, ...withoutTime, ...heldUp]
  const budgets = await callBudgets(tx, now)
  const perMinute = (keyName: string) => completionsPerMinute(fetchRatePerMinute, budgets.get(keyName))
  const dueByQueue = byQueue(due.map((row) => [row.key_name, row.due]))
  const incompleteByQueue = byQueue(scheduled.map((row) => [row.key_name, row.incomplete]))
  const incomplete = sum([...incompleteByQueue.values()])
  // A blocked key starts after its pause. The slowest queue ends last.
  const ends = [...incompleteByQueue].map(([name, count]) => {
    if (count === 0) return 0
    const until = budgets.get(name)?.blocked_until ?? null
    const begins = Math.max(now.getTime(), until === null ? 0 : Date.parse(until))
    return begins + Math.ceil((count * 60) / perMinute(name)) * 1000
  })
  const isFailing = (name: string) => (budgets.get(name)?.failing_since ?? null) !== null
  const waitsForKey = [...incompleteByQueue].some(([name, count]) => count > 0 && isFailing(name))
  const usable = keys.all.filter(isUsable)
  return {
    due: sum([...dueByQueue.values()]),
    // Each key spends its own budget, so the longest queue decides.
    minutes: Math.ceil(Math.max(0, ...[...dueByQueue].map(([name, count]) => count / perMinute(name)))),
    incomplete,
    per_minute: sum(usable.map(({ name }) => perMinute(name))),
    complete_by: incomplete === 0 || waitsForKey ? null : new Date(Math.max(...ends)).toISOString(),
    due_capped: due.some((one) => one.due > maxCounted),
    incomplete_capped: scheduled.some((one) => one.incomplete > maxCounted),
  }
}

/** SQL: counts the requests in `queue`, up to one more than `maxCounted`, which shows that there are more. */
function countInQueue(condition: SQL, order: SQL): SQL {
  return sql`(select count(*)::int from (
        select from mediadock.requests r where ${isScheduledForKey} and ${condition}
        order by ${order} limit ${maxCounted + 1}) as found)`
}

function byQueue(counts: readonly (readonly [name: string, counted: number])[]): Map<string, number> {
  const sums = new Map<string, number>()
  for (const [name, counted] of counts) sums.set(name, (sums.get(name) ?? 0) + Math.min(counted, maxCounted))
  return sums
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, one) => total + one, 0)
}
