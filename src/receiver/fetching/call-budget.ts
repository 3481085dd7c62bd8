import { sql } from 'drizzle-orm'
import { columnsOf, list } from '../../runtime/postgres/columns.ts'
import { answered, one } from '../../runtime/postgres/errors.ts'
import type { Database, Executor } from '../../runtime/postgres/postgres.ts'
import type { RowOf } from '../../runtime/postgres/rows.ts'
import * as fetching from '../domain/budgets-schema.ts'

const budget = columnsOf(fetching.callBudgets)
const b = columnsOf(fetching.callBudgets, 'b')

export type Grant = { ok: true } | { ok: false; reason: string; retryAt: Date }

/**
 * What a call is for:
 * - `submitting` a generation
 * - `landing`: the full result, for a webhook that has just come
 * - `reconciling`: what no webhook brought, with the key that it belongs to
 * - `trying` whether this key knows a request that is taken for another key's
 */
export type Purpose = 'submitting' | 'landing' | 'reconciling' | 'trying'

/**
 * The one rule for who may spend what of a key's calls, in tenths of them:
 * whoever takes a call leaves that much over. Submits may take all, and a fifth is
 * theirs alone; a further tenth is landing's. Whoever holds one secret can name
 * requests that no key knows, and must not spend the calls of all keys with it.
 */
const leftOverTenths: Record<Purpose, number> = { submitting: 0, landing: 2, reconciling: 3, trying: 3 }
const tryingTenths = 1

/** How many calls a minute a key has made when it gives no more for this purpose. */
export function callsFor(purpose: Purpose, limitPerMinute: number): number {
  return limitPerMinute - Math.floor((limitPerMinute * leftOverTenths[purpose]) / 10)
}

function triesFor(limitPerMinute: number): number {
  return Math.max(1, Math.floor((limitPerMinute * tryingTenths) / 10))
}

/** One slot more than a minute has seconds, so that no 60 s anywhere hold more than the limit. */
const slotCount = 61

export type WantedCall = { keyName: string; limitPerMinute: number; purpose: Purpose; now: Date }

/**
 * Takes one call to the provider, if there is one. The budget is one row per key, shared by
 * all replicas, and a strict bound over any 60 s: the calls of each second, the
 * newest first, and beside them those that were tries. One statement ages,
 * counts, decides and remembers.
 */
export async function takeCall(db: Database, { keyName, limitPerMinute, purpose, now }: WantedCall): Promise<Grant> {
  const slots = sql.raw(String(slotCount))
  const second = sql`${Math.floor(now.getTime() / 1000)}::bigint`
  const tries = purpose === 'trying'
  const rows = await db.execute<RowOf<typeof fetching.callBudgets, 'granted' | 'blocked_until' | 'blocked_reason'>>(sql`
    insert into mediadock.call_budgets as b (${list(budget, 'key_name', 'slots', 'trial_slots', 'slots_until', 'granted')})
    values (${keyName}, array[1] || array_fill(0, array[${slots} - 1]), array[${tries ? 1 : 0}::int] || array_fill(0, array[${slots} - 1]), ${second}, true)
    on conflict (key_name) do update set (slots, trial_slots, slots_until, granted) = (
      select array[aged[1] + granted::int] || aged[2:], array[tried[1] + (granted and ${tries}::boolean)::int] || tried[2:], until, granted
      from (
        select aged, tried, until,
               (select sum(calls) from unnest(aged) calls) < ${callsFor(purpose, limitPerMinute)}::int
                 and (not ${tries}::boolean or (select sum(calls) from unnest(tried) calls) < ${triesFor(limitPerMinute)}::int)
                 and coalesce(${b.blocked_until} <= ${now.toISOString()}::timestamptz, true) as granted
        from (
          select until, array_fill(0, array[shift]) || ${b.slots}[1:${slots} - shift] as aged, array_fill(0, array[shift]) || ${b.trial_slots}[1:${slots} - shift] as tried
          from (
            -- A clock a little behind another replica's counts into the newest slot; one that
            -- was put back for good takes all slots as the minute before its new time.
            select case when ${second} < ${b.slots_until} - ${slots} then ${second} else greatest(${b.slots_until}, ${second}) end as until,
                   greatest(least(${second} - ${b.slots_until}, ${slots}), 0)::int as shift
          ) s
        ) a
      ) d)
    returning ${list(budget, 'granted', 'blocked_until', 'blocked_reason')}`)
  const { granted, blocked_until, blocked_reason } = one(rows, `taking a call with the key ${keyName}`)
  if (granted) return { ok: true }
  const blockedUntil = blocked_until === null ? undefined : new Date(blocked_until)
  if (blockedUntil && blockedUntil > now) return { ok: false, reason: blocked_reason ?? 'blocked', retryAt: blockedUntil }
  return { ok: false, reason: 'quota', retryAt: new Date(now.getTime() + 1000) }
}

/** No call with this key before `until`: the provider demanded a pause, or refused the key. The later end stays. */
export async function blockCalls(db: Database, block: { keyName: string; until: Date; reason: string }): Promise<void> {
  await db.execute(sql`
    update mediadock.call_budgets set ${budget.blocked_until} = ${block.until.toISOString()}::timestamptz, ${budget.blocked_reason} = ${block.reason}
    where ${budget.key_name} = ${block.keyName} and coalesce(${budget.blocked_until} < ${block.until.toISOString()}::timestamptz, true)`)
}

export type CallBudget = {
  /** Calls in the minute that ends now. */
  calls: number
  blockedUntil: Date | undefined
  blockedReason: string | undefined
}

/** How much of its budget each key has spent, and whether it rests. */
export async function callBudgets(db: Executor, now: Date): Promise<Map<string, CallBudget>> {
  const oldest = Math.floor(now.getTime() / 1000) - slotCount
  const rows = await db.execute<RowOf<typeof fetching.callBudgets, 'key_name' | 'blocked_until' | 'blocked_reason'> & { used: number }>(sql`
    select ${list(budget, 'key_name', 'blocked_until', 'blocked_reason')}, coalesce((
      select sum(calls) from unnest(${budget.slots}) with ordinality as s(calls, i) where ${budget.slots_until} - (i - 1) > ${oldest}::bigint), 0)::int as used
    from mediadock.call_budgets`)
  return new Map(
    answered(rows, 'reading the budgets of calls').map(({ key_name, used, blocked_until, blocked_reason }) => [
      key_name,
      {
        calls: used,
        blockedUntil: blocked_until === null ? undefined : new Date(blocked_until),
        blockedReason: blocked_reason ?? undefined,
      },
    ]),
  )
}

/** Calls that each key has left in the minute that ends now. */
export async function remainingCalls(db: Executor, limitPerMinute: number, now: Date): Promise<Map<string, number>> {
  const budgets = await callBudgets(db, now)
  return new Map([...budgets].map(([keyName, { calls }]) => [keyName, Math.max(0, limitPerMinute - calls)]))
}
