import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import * as fetching from '../domain/budgets-schema.ts'
import type { KeyHealth } from './call-budget.ts'

const budget = columnsOf(fetching.callBudgets)

const firstRestSeconds = 5
const maxRestSeconds = 300
/** What is over sooner has put nothing off for long: it is tried again by itself. */
const worthRecoveringFromSeconds = 15
const defaultRetryAfterSeconds = 30
export const maxPauseSeconds = 3600

/**
 * The provider refused the key (401, 403): it rests for 5 s, and for twice as long each
 * time that it is refused again, up to 300 s. Of calls that were under way
 * together only one counts: the first that finds the key as it was when its call was granted.
 */
export async function restRefusedKey(
  db: Database,
  { keyName, health, now }: { keyName: string; health: KeyHealth; now: Date },
): Promise<void> {
  const at = sql`${now.toISOString()}::timestamptz`
  const restSeconds = Math.min(firstRestSeconds * 2 ** Math.min(health.refusals, 16), maxRestSeconds)
  await db.execute(sql`
    update mediadock.call_budgets set ${budget.refusals} = ${budget.refusals} + 1, ${budget.failing_since} = coalesce(${budget.failing_since}, ${at}),
      ${budget.blocked_until} = ${at} + make_interval(secs => ${restSeconds}), ${budget.blocked_reason} = 'unauthorized'
    where ${budget.key_name} = ${keyName} and ${budget.refusals} = ${health.refusals}
      and (${budget.blocked_reason} = 'unauthorized' or coalesce(${budget.blocked_until} < ${at} + make_interval(secs => ${restSeconds}), true))`)
}

/** The provider gives nobody an answer, as far as this process sees: noted beside every key, so that whoever gets one again knows. */
export async function noteFailing(db: Database, now: Date): Promise<void> {
  await db.execute(sql`
    update mediadock.call_budgets set ${budget.failing_since} = ${now.toISOString()}::timestamptz where ${budget.failing_since} is null`)
}

/**
 * A call with this key was answered, after calls had failed, in whatever process: the key rests
 * no longer, and where the provider itself had been away no other key's requests
 * wait either. What that held up counts as due from now on (isHeldUp() in due.ts).
 */
export async function noteRecovered(db: Database, { keyName, now }: { keyName: string; now: Date }): Promise<void> {
  const at = sql`${now.toISOString()}::timestamptz`
  await db.execute(sql`
    update mediadock.call_budgets set
      ${budget.recovered_at} = case when ${budget.failing_since} <= ${at} - make_interval(secs => ${worthRecoveringFromSeconds})
        then ${at} else ${budget.recovered_at} end,
      ${budget.failing_since} = null, ${budget.refusals} = 0,
      ${budget.blocked_until} = case when ${budget.blocked_reason} = 'unauthorized' then null else ${budget.blocked_until} end
    where (${budget.failing_since} is not null or ${budget.refusals} > 0) and (${budget.key_name} = ${keyName} or ${budget.refusals} = 0)`)
}

/** An answer of either operation. */
type PausingOutcome = { kind: string; retryAfterSeconds?: number | undefined }

/** How long the key must rest after this answer, by the provider's own word. */
export function pauseAfter(
  outcome: PausingOutcome,
  rate: { remaining: number; resetSeconds: number } | undefined,
): { seconds: number; reason: string } | undefined {
  if (outcome.kind === 'rate_limited') {
    const seconds = outcome.retryAfterSeconds ?? rate?.resetSeconds ?? defaultRetryAfterSeconds
    return { seconds: Math.min(Math.max(1, seconds), maxPauseSeconds), reason: 'rate_limited' }
  }
  if (rate && rate.remaining <= 0)
    return { seconds: Math.min(Math.max(1, rate.resetSeconds), maxPauseSeconds), reason: 'rate_limit_spent' }
  return undefined
}
