import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { executePrepared } from '../../platform/postgres/prepared.ts'
import { later } from '../../platform/postgres/time.ts'
import type { KeyHealth } from './key-health.ts'
import { callDeadlineMs } from './source-client.ts'

type Grant =
  | { ok: true; health: KeyHealth }
  /**
   * No call before this time. Then there is one, unless another process takes it. `reason`: `quota` of this file, or the
   * reason with which key-health.ts has blocked the key: `unauthorized`, `rate_limited`, `rate_limit_spent`, or
   * `provider_down`.
   */
  | { ok: false; reason: string; retryAfterSeconds: number }

/**
 * The purpose of a call:
 * - `submitting` a generation, and what callers of the API ask for: estimates, models, the account, a cancellation
 * - `completing`: reading the result of a request, after its webhook, by the reconciler, or for a new link to its media
 * - `trial`: the call of an extra poll (duePolls() in reconciling/due.ts), or for a request that is attributed
 *   to another key or that no key has known so far; it counts as completing
 */
export type Purpose = 'submitting' | 'completing' | 'trial'

/** The calls of a key in any 60 s, each at least one. */
export function sharesOf(limitPerMinute: number) {
  const tenths = (count: number) => Math.max(1, Math.floor((limitPerMinute * count) / 10))
  const submitting = tenths(4)
  return {
    /** The calls that submitting always has. */
    submitting,
    /** The calls that completing always has. A generation takes two calls: completing must keep up with submits. */
    completing: Math.max(1, limitPerMinute - submitting),
    /** The limit of trial calls. The holder of one secret can name requests that no key knows. */
    trial: tenths(1),
    /** The most calls that a side may take beyond its share in a tenth of the minute, so that the other finds some. */
    pace: tenths(1),
  }
}

/** One more slot than a minute has seconds, so that no 60 s contain more calls than the limit. */
export const slotCount = 61
const slots = sql.raw(String(slotCount))
/** A tenth of the minute: see `pace`. */
const paceSlots = 6
/** While a call tests a refused key, no other call is made with the key. */
const probeSeconds = callDeadlineMs / 1000

type WantedCall = {
  keyName: string
  limitPerMinute: number
  purpose: Purpose
  /** The time that replicas share. */
  now: SQL
}

type BudgetRow = {
  granted: boolean
  refusals: number
  failing_since: string | null
  blocked_reason: string | null
  blocked_seconds: number | null
  free_seconds: number | null
}

/**
 * Takes one call with a key, if it has one left. The budget is one row per key, shared by all replicas, and a strict
 * bound over any 60 s. secondsUntilFree() states how submitting and completing share it.
 *
 * Keys whose account is known share a limit besides (accounts/accounts.ts). It is not strict: calls that several keys
 * take at the same moment do not see each other, which the default leaves room for.
 *
 * The row counts, for each second of the last minute and the newest first, the calls, the submits and the trial calls
 * among them, and the calls that either side was refused. A key that the source refused gets one call at a time. One
 * statement ages the counts, decides, and stores the new ones, in this order.
 */
export async function takeCall(db: Database, wanted: WantedCall): Promise<Grant> {
  const { keyName, purpose, now } = wanted
  const isSubmit = sql`${purpose === 'submitting'}::boolean`
  const isTrial = sql`${purpose === 'trial'}::boolean`
  const second = sql`floor(extract(epoch from ${now}))::bigint`
  const rows = await executePrepared<BudgetRow>(
    db,
    sql`
    insert into mediadock.call_budgets as b (key_name, slots, submit_slots, trial_slots, slots_until, granted)
    values (${keyName}, ${firstSlot(sql`1`)}, ${firstSlot(sql`${isSubmit}::int`)}, ${firstSlot(sql`${isTrial}::int`)},
      ${second}, true)
    on conflict (key_name) do update
    set (slots, submit_slots, trial_slots, missed_slots, missed_submit_slots, slots_until, granted,
        blocked_until, blocked_reason) = (
      with shifted as (
        -- A time a little before the newest slot counts into that. A time long before it, after a clock was set back,
        -- begins a new minute with the calls of the old one.
        select case when ${second} < b.slots_until - ${slots} then ${second}
            else greatest(b.slots_until, ${second}) end as until,
          greatest(least(${second} - b.slots_until, ${slots}), 0)::int as shift
      ),
      minute as (
        select until, ${aged('b.slots')} as calls, ${aged('b.submit_slots')} as submits,
          ${aged('b.trial_slots')} as trials, ${aged('b.missed_slots')} as missed,
          ${aged('b.missed_submit_slots')} as missed_submits
        from shifted
      ),
      counted as (
        select *, coalesce(b.blocked_until > ${now}, false) as blocked,
          (select sum(n) from unnest(calls) n)
            + (select coalesce(sum(s.n), 0) from mediadock.call_budgets o
              cross join unnest(o.slots) with ordinality as s (n, i)
              where o.account_id = b.account_id and o.key_name <> b.key_name
                and o.slots_until - (s.i - 1) > until - ${slots}) as of_account
        from minute
      ),
      decided as (
        select *, not blocked and ${secondsUntilFree(wanted, 'calls, submits, trials, missed, missed_submits')} = 0
            and (b.account_id is null or of_account < b.account_limit) as granted
        from counted
      )
      select ${counting('calls', sql`granted`)},
        ${counting('submits', sql`granted and ${isSubmit}`)},
        ${counting('trials', sql`granted and ${isTrial}`)},
        ${counting('missed', sql`not granted and not blocked and not ${isSubmit} and not ${isTrial}`)},
        ${counting('missed_submits', sql`not granted and not blocked and ${isSubmit}`)},
        until, granted,
        case when granted and b.refusals > 0 then ${later(now, probeSeconds)} else b.blocked_until end,
        case when granted and b.refusals > 0 then 'unauthorized' else b.blocked_reason end
      from decided)
    returning granted, refusals, failing_since, blocked_reason,
      extract(epoch from blocked_until - ${now})::float8 as blocked_seconds,
      case when not granted then (
        ${secondsUntilFree(wanted, 'slots, submit_slots, trial_slots, missed_slots, missed_submit_slots')}
        - (extract(epoch from ${now}) - slots_until))::float8 end as free_seconds`,
  )
  return grantOf(one(rows, `taking a call with the key ${keyName}`))
}

function grantOf({ granted, refusals, failing_since, ...refused }: BudgetRow): Grant {
  if (granted) return { ok: true, health: { refusals, failing: failing_since !== null } }
  const { blocked_reason: reason, blocked_seconds: blockedSeconds, free_seconds: freeSeconds } = refused
  if (blockedSeconds !== null && blockedSeconds > 0)
    return { ok: false, reason: reason ?? 'blocked', retryAfterSeconds: blockedSeconds }
  // If the key itself has a call, the account's limit was the reason. Other keys take the account's calls, so try again
  // in a second.
  return { ok: false, reason: 'quota', retryAfterSeconds: freeSeconds !== null && freeSeconds > 0 ? freeSeconds : 1 }
}

/**
 * SQL: in how many seconds the limits of a key leave a call for this purpose, if no process takes one before. 0 if they
 * do now.
 *
 * - Within its share (sharesOf), a side takes any call that is left.
 * - Beyond its share, a side takes idle calls of the other, at an even pace. It leaves as many as the other side was
 *   refused in the last minute.
 * - Trial calls have a limit besides.
 *
 * `counts` are the arrays of a budget, in the order below. It finds the largest number `kept` of newest slots that leaves
 * a call: there is one when the older slots have expired, one each second. For example, with a limit of 2 and calls in
 * the newest slot and the third, the 2 newest slots leave a call. The third expires after 61 - 2 = 59 s.
 */
function secondsUntilFree({ purpose, limitPerMinute }: WantedCall, counts: string): SQL {
  const [own, missedByOther] = purpose === 'submitting' ? ['submits', 'missed'] : ['calls - submits', 'missed_submits']
  const shares = sharesOf(limitPerMinute)
  const limit = sql`${limitPerMinute}::int`
  const share = sql`${purpose === 'submitting' ? shares.submitting : shares.completing}::int`
  const trialLimit = sql`${purpose === 'trial' ? shares.trial : limitPerMinute}::int`
  const olderThanPace = sql.raw(String(slotCount - paceSlots))
  return sql`(
    select ${slots} - coalesce(max(kept), 0) from (
      select kept, sum(calls) over newest as total, sum(${sql.raw(own)}) over newest as own,
        sum(${sql.raw(missedByOther)}) over newest as missed_by_other, sum(trials) over newest as trials,
        coalesce(sum(${sql.raw(own)}) over (
          order by kept rows between unbounded preceding and ${olderThanPace} preceding), 0) as own_lately
      from unnest(${sql.raw(counts)}) with ordinality
        as s (calls, submits, trials, missed, missed_submits, kept)
      window newest as (order by kept)
    ) as left_over
    where total < ${limit} and trials < ${trialLimit}
      and (own < ${share} or (total + missed_by_other < ${limit} and own_lately < ${shares.pace}::int)))`
}

/** SQL: the slots of a minute with only `count` in the newest second. */
function firstSlot(count: SQL): SQL {
  return sql`array[${count}] || array_fill(0, array[${slots} - 1])`
}

/** SQL: the slots, moved by `shift` seconds. */
function aged(counted: string): SQL {
  return sql`array_fill(0, array[shift]) || ${sql.raw(counted)}[1:${slots} - shift]`
}

/** SQL: the slots, with one more in the newest second if `isCounted`. */
function counting(counted: string, isCounted: SQL): SQL {
  return sql`array[${sql.raw(counted)}[1] + (${isCounted})::int] || ${sql.raw(counted)}[2:]`
}
