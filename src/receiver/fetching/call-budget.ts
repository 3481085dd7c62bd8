import { columnsOf, list } from '../../runtime/postgres/columns.ts'
import { sql } from '../../runtime/postgres/drizzle.ts'
import { answered, one } from '../../runtime/postgres/errors.ts'
import type { Database, Executor } from '../../runtime/postgres/postgres.ts'
import type { RowOf } from '../../runtime/postgres/rows.ts'
import * as fetching from '../domain/budgets-schema.ts'

const budget = columnsOf(fetching.callBudgets)
const b = columnsOf(fetching.callBudgets, 'b')

/** What is to be told of the key once the call has its answer: see key-health.ts. */
export type KeyHealth = {
  /** How often in a row the key had been refused when the call was granted. */
  refusals: number
  /** Whether it was known that calls with it fail. */
  failing: boolean
}

export type Grant = { ok: true; health: KeyHealth } | { ok: false; reason: string; retryAt: Date }

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
const submittingTenths = 2
const landingTenths = 1
const tryingTenths = 1

/**
 * How many calls a minute a key has made when it gives no more for this purpose:
 * at least one, and otherwise at least one less than for what goes before.
 */
export function callsFor(purpose: Purpose, limitPerMinute: number): number {
  const share = (tenths: number) => Math.ceil((limitPerMinute * tenths) / 10)
  const leftOver: Record<Purpose, number> = {
    submitting: 0,
    landing: share(submittingTenths),
    reconciling: share(submittingTenths) + share(landingTenths),
    trying: share(submittingTenths) + share(landingTenths),
  }
  return Math.max(1, limitPerMinute - leftOver[purpose])
}

function triesFor(limitPerMinute: number): number {
  return Math.max(1, Math.floor((limitPerMinute * tryingTenths) / 10))
}

/** One slot more than a minute has seconds, so that no 60 s anywhere hold more than the limit. */
const slotCount = 61
/** As long as a call can take: while one finds out whether a key is accepted again, no other is made with it. */
const probeSeconds = 10

export type WantedCall = {
  keyName: string
  limitPerMinute: number
  purpose: Purpose
  now: Date
  /** How many calls for landing were not even asked for since the last time, as there were none. */
  missed?: number
}

type Slots = 'slots' | 'trial_slots' | 'missed_slots' | 'slots_until'
type Answer = RowOf<typeof fetching.callBudgets, Slots | 'granted' | 'blocked_until' | 'blocked_reason' | 'refusals' | 'failing_since'>

/**
 * Takes one call to the provider, if there is one. The budget is one row per key, shared by
 * all replicas, and a strict bound over any 60 s: the calls of each second, the
 * newest first, and beside them those that were tries. What landing was refused in that minute
 * the reconciler leaves over besides: new results come first. Of a key that was refused
 * only one call is given until that has its answer. One statement ages, counts, decides and remembers.
 */
export async function takeCall(db: Database, wanted: WantedCall): Promise<Grant> {
  const { keyName, limitPerMinute, purpose, now, missed = 0 } = wanted
  const slots = sql.raw(String(slotCount))
  const at = sql`${now.toISOString()}::timestamptz`
  const second = sql`${Math.floor(now.getTime() / 1000)}::bigint`
  const tries = sql`${purpose === 'trying'}::boolean`
  const lands = sql`${purpose === 'landing'}::boolean`
  const comesLast = sql`${purpose === 'reconciling' || purpose === 'trying'}::boolean`
  const rows = await db.execute<Answer>(sql`
    insert into mediadock.call_budgets as b (${list(budget, 'key_name', 'slots', 'trial_slots', 'missed_slots', 'slots_until', 'granted')})
    values (${keyName}, array[1] || array_fill(0, array[${slots} - 1]), array[${tries}::int] || array_fill(0, array[${slots} - 1]),
      array[${missed}::int] || array_fill(0, array[${slots} - 1]), ${second}, true)
    on conflict (key_name) do update set (slots, trial_slots, missed_slots, slots_until, granted, blocked_until, blocked_reason) = (
      select array[aged[1] + granted::int] || aged[2:], array[tried[1] + (granted and ${tries})::int] || tried[2:],
             array[missed[1] + ${missed}::int + (${lands} and not granted)::int] || missed[2:], until, granted,
             case when granted and ${b.refusals} > 0 then ${at} + make_interval(secs => ${probeSeconds}) else ${b.blocked_until} end,
             case when granted and ${b.refusals} > 0 then 'unauthorized' else ${b.blocked_reason} end
      from (
        select aged, tried, missed, until,
               (select sum(calls) from unnest(aged) calls) + case when ${comesLast} then (select sum(calls) from unnest(missed) calls) + ${missed}::int else 0 end
                   < ${callsFor(purpose, limitPerMinute)}::int
                 and (not ${tries} or (select sum(calls) from unnest(tried) calls) < ${triesFor(limitPerMinute)}::int)
                 and coalesce(${b.blocked_until} <= ${at}, true) as granted
        from (
          select until, array_fill(0, array[shift]) || ${b.slots}[1:${slots} - shift] as aged,
                 array_fill(0, array[shift]) || ${b.trial_slots}[1:${slots} - shift] as tried,
                 array_fill(0, array[shift]) || ${b.missed_slots}[1:${slots} - shift] as missed
          from (
            -- A clock a little behind another replica's counts into the newest slot; one that
            -- was put back for good takes all slots as the minute before its new time.
            select case when ${second} < ${b.slots_until} - ${slots} then ${second} else greatest(${b.slots_until}, ${second}) end as until,
                   greatest(least(${second} - ${b.slots_until}, ${slots}), 0)::int as shift
          ) s
        ) a
      ) d)
    returning ${list(budget, 'granted', 'slots', 'trial_slots', 'missed_slots', 'slots_until', 'blocked_until', 'blocked_reason', 'refusals', 'failing_since')}`)
  const answer = one(rows, `taking a call with the key ${keyName}`)
  if (answer.granted) return { ok: true, health: { refusals: answer.refusals, failing: answer.failing_since !== null } }
  const blockedUntil = answer.blocked_until === null ? undefined : new Date(answer.blocked_until)
  if (blockedUntil && blockedUntil > now) return { ok: false, reason: answer.blocked_reason ?? 'blocked', retryAt: blockedUntil }
  return { ok: false, reason: 'quota', retryAt: freeAt(answer, wanted) }
}

/** When there is a call for this purpose again, if nobody takes one before: once enough of the oldest calls are a minute ago. */
function freeAt(
  { slots, trial_slots, missed_slots, slots_until }: Pick<Answer, Slots>,
  { purpose, limitPerMinute, now }: WantedCall,
): Date {
  const comesLast = purpose === 'reconciling' || purpose === 'trying'
  const spent = slots.map((calls, at) => calls + (comesLast ? (missed_slots[at] ?? 0) : 0))
  const seconds = Math.max(
    secondBelow(spent, callsFor(purpose, limitPerMinute)),
    purpose === 'trying' ? secondBelow(trial_slots, triesFor(limitPerMinute)) : 0,
  )
  return new Date(Math.max(now.getTime() + 1, (Number(slots_until) + seconds) * 1000))
}

/** In how many seconds after the newest slot's the sum of those that are left is below the limit. */
function secondBelow(slots: readonly number[], limit: number): number {
  let left = slots.reduce((sum, calls) => sum + calls, 0)
  if (left < limit) return 0
  for (const [age, calls] of [...slots.entries()].toReversed()) {
    left -= calls
    if (left < limit) return slotCount - age
  }
  return slotCount
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
