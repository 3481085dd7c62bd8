import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL, type StringChunk } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
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
 * - `completing`: the provider's result of a request, for a webhook that has just come or by the reconciler
 * - `trying` whether this key knows a request that is taken for another key's, or what is true of a request that a
 *   delivery raised doubt about; it counts as completing
 */
export type Purpose = 'submitting' | 'completing' | 'trying'

/** A generation takes two calls. Completing has the larger share, so that it catches up while submits never cease. */
const submittingTenths = 4
/** The holder of one secret can name requests that no key knows, and must not spend the calls of all keys with them. */
const tryingTenths = 1

/** The calls in any 60 s that submitting, or completing, can count on. At least one each. */
export function shareFor(purpose: Purpose, limitPerMinute: number): number {
  const submitting = Math.max(1, Math.floor((limitPerMinute * submittingTenths) / 10))
  return purpose === 'submitting' ? submitting : Math.max(1, limitPerMinute - submitting)
}

function triesFor(limitPerMinute: number): number {
  return Math.max(1, Math.floor((limitPerMinute * tryingTenths) / 10))
}

/** One slot more than a minute has seconds, so that no 60 s anywhere hold more than the limit. */
const slotCount = 61
const slots = sql.raw(String(slotCount))
/** A tenth of the minute in which beyond its share a side makes a tenth of the calls: the rest of the other's stays at hand. */
const paceSlots = 6
/** As long as a call can take: while one finds out whether a key is accepted again, no other is made with it. */
const probeSeconds = 10

function paceFor(limitPerMinute: number): number {
  return Math.max(1, Math.floor((limitPerMinute * paceSlots) / 60))
}

export type WantedCall = {
  keyName: string
  limitPerMinute: number
  purpose: Purpose
  now: Date
}

type Part = SQL | StringChunk
type Slots = 'slots' | 'submit_slots' | 'trial_slots' | 'missed_slots' | 'missed_submit_slots' | 'slots_until'
type Answer = RowOf<
  typeof fetching.callBudgets,
  Slots | 'granted' | 'blocked_until' | 'blocked_reason' | 'refusals' | 'failing_since'
>

/**
 * Takes one call to the provider, if there is one. The budget is one row per key, shared by all
 * replicas, and a strict bound over any 60 s. One rule shares it between submitting and completing:
 *
 * - Each side has its share (shareFor). Within it a side takes any call that is left.
 * - Beyond it a side takes calls of the other side at an even pace, and leaves as many
 *   as the other side was refused in the last minute.
 *
 * The row counts the calls of each second, the newest first, and which of them were submits and which
 * were tries, and what either side was refused. Of a key that was refused by the provider only one
 * call is given until that has its answer. One statement ages, counts, decides and remembers.
 */
export async function takeCall(db: Database, wanted: WantedCall): Promise<Grant> {
  const { keyName, limitPerMinute, purpose, now } = wanted
  const at = sql`${now.toISOString()}::timestamptz`
  const second = sql`${Math.floor(now.getTime() / 1000)}::bigint`
  const submits = sql`${purpose === 'submitting'}::boolean`
  const completes = sql`${purpose === 'completing'}::boolean`
  const tries = sql`${purpose === 'trying'}::boolean`
  const limit = sql`${limitPerMinute}::int`
  const rows = await db.execute<Answer>(sql`
    insert into mediadock.call_budgets as b (${list(budget, 'key_name', 'slots', 'submit_slots', 'trial_slots', 'slots_until', 'granted')})
    values (${keyName}, ${firstSlot(sql`1`)}, ${firstSlot(sql`${submits}::int`)}, ${firstSlot(sql`${tries}::int`)}, ${second}, true)
    on conflict (key_name) do update
    set (slots, submit_slots, trial_slots, missed_slots, missed_submit_slots, slots_until, granted, blocked_until, blocked_reason) = (
      select ${counting(sql`calls`, sql`granted`)}, ${counting(sql`submits`, sql`granted and ${submits}`)}, ${counting(sql`tried`, sql`granted and ${tries}`)},
             ${counting(sql`missed`, sql`not granted and not blocked and ${completes}`)}, ${counting(sql`missed_submits`, sql`not granted and not blocked and ${submits}`)},
             until, granted,
             case when granted and ${b.refusals} > 0 then ${at} + make_interval(secs => ${probeSeconds}) else ${b.blocked_until} end,
             case when granted and ${b.refusals} > 0 then 'unauthorized' else ${b.blocked_reason} end
      from (
        select *, not blocked and total < ${limit}
            and (own < ${shareFor(purpose, limitPerMinute)}::int or (total + missed_by_other < ${limit} and own_lately < ${paceFor(limitPerMinute)}::int))
            and (not ${tries} or ${sum(sql`tried`)} < ${triesFor(limitPerMinute)}::int) as granted
        from (
          select *, coalesce(${b.blocked_until} > ${at}, false) as blocked, ${sum(sql`calls`)} as total,
                 ${ownCalls(submits, slotCount)} as own, ${ownCalls(submits, paceSlots)} as own_lately,
                 case when ${submits} then ${sum(sql`missed`)} else ${sum(sql`missed_submits`)} end as missed_by_other
          from (
            select until, ${aged(b.slots)} as calls, ${aged(b.submit_slots)} as submits, ${aged(b.trial_slots)} as tried,
                   ${aged(b.missed_slots)} as missed, ${aged(b.missed_submit_slots)} as missed_submits
            from (
              -- A clock a little behind another replica's counts into the newest slot; one that
              -- was put back for good takes all slots as the minute before its new time.
              select case when ${second} < ${b.slots_until} - ${slots} then ${second} else greatest(${b.slots_until}, ${second}) end as until,
                     greatest(least(${second} - ${b.slots_until}, ${slots}), 0)::int as shift
            ) s
          ) a
        ) c
      ) d)
    returning ${list(budget, 'granted', 'slots', 'submit_slots', 'trial_slots', 'missed_slots', 'missed_submit_slots', 'slots_until')},
      ${list(budget, 'blocked_until', 'blocked_reason', 'refusals', 'failing_since')}`)
  const answer = one(rows, `taking a call with the key ${keyName}`)
  if (answer.granted) return { ok: true, health: { refusals: answer.refusals, failing: answer.failing_since !== null } }
  const blockedUntil = answer.blocked_until === null ? undefined : new Date(answer.blocked_until)
  if (blockedUntil && blockedUntil > now)
    return { ok: false, reason: answer.blocked_reason ?? 'blocked', retryAt: blockedUntil }
  return { ok: false, reason: 'quota', retryAt: freeAt(answer, wanted) }
}

/** A minute in which nothing was counted but `count` in its newest second. */
function firstSlot(count: Part): SQL {
  return sql`array[${count}] || array_fill(0, array[${slots} - 1])`
}

/** The same seconds, `shift` of them later. */
function aged(counted: Part): SQL {
  return sql`array_fill(0, array[shift]) || ${counted}[1:${slots} - shift]`
}

/** One more in the newest second, where `isCounted`. */
function counting(counted: SQL, isCounted: SQL): SQL {
  return sql`array[${counted}[1] + (${isCounted})::int] || ${counted}[2:]`
}

function sum(counted: SQL): SQL {
  return sql`(select sum(n) from unnest(${counted}) n)`
}

/** Of the side that wants a call, in the newest `seconds`. */
function ownCalls(submits: SQL, seconds: number): SQL {
  const newest = sql.raw(`[1:${seconds}]`)
  return sql`case when ${submits} then ${sum(sql`submits${newest}`)} else ${sum(sql`calls${newest}`)} - ${sum(sql`submits${newest}`)} end`
}

/** When there is a call for this purpose again, if nobody takes one before: once enough of the oldest calls are a minute ago. */
function freeAt(answer: Pick<Answer, Slots>, { purpose, limitPerMinute, now }: WantedCall): Date {
  const { slots: calls, submit_slots: submits } = answer
  const own = purpose === 'submitting' ? submits : calls.map((count, at) => count - (submits[at] ?? 0))
  const missed = purpose === 'submitting' ? answer.missed_slots : answer.missed_submit_slots
  const left = calls.map((count, at) => count + (missed[at] ?? 0))
  const withinShare = Math.max(secondBelow(calls, limitPerMinute), secondBelow(own, shareFor(purpose, limitPerMinute)))
  const beyondShare = Math.max(
    secondBelow(left, limitPerMinute),
    secondBelow(own.slice(0, paceSlots), paceFor(limitPerMinute)),
  )
  const seconds = Math.max(
    Math.min(withinShare, beyondShare),
    purpose === 'trying' ? secondBelow(answer.trial_slots, triesFor(limitPerMinute)) : 0,
  )
  return new Date(Math.max(now.getTime() + 1, (Number(answer.slots_until) + seconds) * 1000))
}

/** In how many seconds after the newest slot's the sum of those that are left is below the limit. */
function secondBelow(counted: readonly number[], limit: number): number {
  let left = counted.reduce((total, count) => total + count, 0)
  if (left < limit) return 0
  for (const [age, count] of [...counted.entries()].toReversed()) {
    left -= count
    if (left < limit) return counted.length - age
  }
  return counted.length
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
  /** Those of them that were submits. */
  submits: number
  blockedUntil: Date | undefined
  blockedReason: string | undefined
}

type BudgetRow = RowOf<typeof fetching.callBudgets, 'key_name' | 'blocked_until' | 'blocked_reason'> &
  Pick<CallBudget, 'calls' | 'submits'>

/** How much of its budget each key has spent, and whether it rests. */
export async function callBudgets(db: Executor, now: Date): Promise<Map<string, CallBudget>> {
  const oldest = Math.floor(now.getTime() / 1000) - slotCount
  const lately = (counted: StringChunk) => sql`coalesce((
      select sum(n) from unnest(${counted}) with ordinality as s(n, i) where ${budget.slots_until} - (i - 1) > ${oldest}::bigint), 0)::int`
  const rows = await db.execute<BudgetRow>(sql`
    select ${list(budget, 'key_name', 'blocked_until', 'blocked_reason')}, ${lately(budget.slots)} as calls, ${lately(budget.submit_slots)} as submits
    from mediadock.call_budgets`)
  return new Map(
    rows.map(({ key_name, calls, submits, blocked_until, blocked_reason }) => [
      key_name,
      {
        calls,
        submits,
        blockedUntil: blocked_until === null ? undefined : new Date(blocked_until),
        blockedReason: blocked_reason ?? undefined,
      },
    ]),
  )
}

/** How many calls a minute completing gets of a key for as long as submitting wants no more than in the last minute. */
export function completionsPerMinute(limitPerMinute: number, budget: CallBudget | undefined): number {
  return Math.max(shareFor('completing', limitPerMinute), limitPerMinute - (budget?.submits ?? 0))
}

/** Calls that each key has left in the minute that ends now. */
export async function remainingCalls(db: Executor, limitPerMinute: number, now: Date): Promise<Map<string, number>> {
  const budgets = await callBudgets(db, now)
  return new Map([...budgets].map(([keyName, { calls }]) => [keyName, Math.max(0, limitPerMinute - calls)]))
}
