import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { later, type SharedTime } from '../../platform/postgres/time.ts'
import { keyNamesOf, type GenerationKey, type Keys } from '../domain/keys.ts'
import type { RateAnswer } from './source-client.ts'

/** The health of a key when a call was granted. The answer of the call changes it, in the key's row of `call_budgets`. */
export type KeyHealth = {
  /** How many times in a row the source had refused the key. */
  refusals: number
  /** True if calls with the key were known to fail. */
  failing: boolean
}

export type CallOutcome = { kind: string; retryAfterSeconds?: number | undefined }

/** The effect of an answer on the health of its key. `none`: the source neither accepted nor refused the key. */
export type KeyEffect = 'refused' | 'accepted' | 'none'

type AnswerToCall = {
  key: GenerationKey
  /** The health when the call was granted. */
  health: KeyHealth
  outcome: CallOutcome
  rate?: RateAnswer | undefined
  downSeconds?: number | undefined
  effect?: KeyEffect | undefined
}

/** Records an answer's effect on its key: a limited or refused key is blocked, an accepted one no longer is. */
export async function noteAnswer(
  { db, keys, time }: { db: Database; keys: () => Keys; time: SharedTime },
  { key, health, outcome, rate, downSeconds, effect = keyEffect(outcome) }: AnswerToCall,
): Promise<void> {
  const keyName = key.name
  // Counted from the answer, since a call may take up to 10 s.
  const now = time()
  if (effect === 'refused') await blockRefusedKey(db, { keyName, health, now })
  else if (effect === 'accepted' && (health.failing || health.refusals > 0))
    await noteRecovered(db, { keyName, keyNames: keyNamesOf(keys(), key.source), now })
  const block = pauseAfter({ outcome, rate, downSeconds })
  if (block) await blockCalls(db, { keyName, now, ...block })
}

/** Returns the effect of an outcome on its key. Calls whose 403 may concern something else pass `effect`. */
function keyEffect({ kind }: { kind: string }): KeyEffect {
  if (kind === 'unauthorized') return 'refused'
  return kind === 'unreachable' || kind === 'invalid' || kind === 'rate_limited' ? 'none' : 'accepted'
}

export const maxPauseSeconds = 3600
/** A source may be back before it said. Its results must be complete within 30 s of its return. */
const maxDownSeconds = 15

/** Returns the pause that the source demands of the key after this answer. */
function pauseAfter({ outcome, rate, downSeconds }: Pick<AnswerToCall, 'outcome' | 'rate' | 'downSeconds'>) {
  const { kind, retryAfterSeconds } = outcome
  const of = (reason: string, seconds: number) => ({ reason, seconds: Math.min(Math.max(1, seconds), maxPauseSeconds) })
  if (kind === 'rate_limited') return of('rate_limited', retryAfterSeconds ?? rate?.resetSeconds ?? 30)
  if (downSeconds !== undefined) return of('provider_down', Math.min(downSeconds, maxDownSeconds))
  return rate && rate.remaining <= 0 ? of('rate_limit_spent', rate.resetSeconds) : undefined
}

/**
 * Blocks a key that the source refused (401, 403): for 5 s, doubled with each refusal up to 300 s. Of concurrent
 * calls only the first refusal counts: the one that finds the key as it was when its call was granted.
 */
export async function blockRefusedKey(
  db: Database,
  { keyName, health, now }: { keyName: string; health: KeyHealth; now: SQL },
): Promise<void> {
  const until = later(now, Math.min(5 * 2 ** Math.min(health.refusals, 16), 300))
  await db.execute(sql`
    update mediadock.call_budgets set refusals = refusals + 1, failing_since = coalesce(failing_since, ${now}),
      blocked_until = ${until}, blocked_reason = 'unauthorized'
    where key_name = ${keyName} and refusals = ${health.refusals}
      and (blocked_reason = 'unauthorized' or coalesce(blocked_until < ${until}, true))`)
}

/** Blocks a key for `seconds`, as the source demanded. Of two pauses the later end applies. */
export async function blockCalls(
  db: Database,
  { keyName, now, seconds, reason }: { keyName: string; now: SQL; seconds: number; reason: string },
): Promise<void> {
  const until = later(now, seconds)
  await db.execute(sql`
    update mediadock.call_budgets set blocked_until = ${until}, blocked_reason = ${reason}
    where key_name = ${keyName} and coalesce(blocked_until < ${until}, true)`)
}

/** After a shorter outage, polls that it held up are due soon in any case. */
const worthRecoveringFromSeconds = 15

/**
 * Records that a call with this key was answered after failures. A block because of a refusal ends. If the source
 * itself was away, this applies to all its keys, `keyNames`. Polls that were held up are due from now on (isHeldUp in
 * due.ts).
 */
export async function noteRecovered(
  db: Database,
  { keyName, keyNames, now }: { keyName: string; keyNames: string[]; now: SQL },
): Promise<void> {
  await db.execute(sql`
    update mediadock.call_budgets set
      recovered_at = case when failing_since <= ${later(now, -worthRecoveringFromSeconds)}
        then ${now} else recovered_at end,
      failing_since = null, refusals = 0,
      blocked_until = case when blocked_reason = 'unauthorized' then null else blocked_until end
    where (failing_since is not null or refusals > 0)
      and (key_name = ${keyName} or (refusals = 0 and key_name = any(${sql.param(keyNames)}::text[])))`)
}

/** Records that no key of a source gets usable answers. Any process may record the end: noteRecovered(). */
export async function noteFailing(db: Database, { keyNames, now }: { keyNames: string[]; now: SQL }): Promise<void> {
  await db.execute(sql`
    update mediadock.call_budgets set failing_since = ${now}
    where failing_since is null and key_name = any(${sql.param(keyNames)}::text[])`)
}
