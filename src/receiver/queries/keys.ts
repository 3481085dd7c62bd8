import { z } from 'zod'
import { columnsOf } from '../../platform/postgres/columns.ts'
import { type Column, desc, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import { sha256Hex } from '../domain/delivery.ts'
import type { Keys } from '../domain/keys.ts'
import { keyUses } from '../domain/on-call-schema.ts'
import { type CallBudget, callBudgets, callsLeft } from '../gauges/call-budgets.ts'

const uses = columnsOf(keyUses)

export const keySchema = z
  .object({
    id: z.string().describe('The same as the name.'),
    name: z.string(),
    configured: z.boolean().describe('False for a key that has matched in the past and is no longer configured.'),
    source_name: z.string().nullable().describe('Its source. Null if it is not configured.'),
    environment: z.enum(['live', 'sandbox']).nullable(),
    retired: z.boolean(),
    fingerprint: z.string().nullable().describe('The first 8 hex digits of the SHA-256 of its signing secret.'),
    first_match_at: z.iso.datetime().nullable(),
    last_match_at: z.iso.datetime().nullable().describe('When its secret last matched a signature.'),
    matches: z.int(),
    still_matches: z.boolean().describe('Retired or not configured, and it matched in the last 24 hours.'),
    calls: z.int().describe('Calls to the provider in the last 60 seconds.'),
    quota_left: z.int().describe('Calls left in these 60 seconds, of its own limit and of its account.'),
    account_id: z.string().nullable().describe('Its account at the provider. Null until the receiver has asked.'),
    account_calls: z.int().nullable().describe('Calls of all keys of the account in the last 60 seconds.'),
    account_limit: z.int().nullable().describe('Calls that all keys of the account may make in 60 seconds together.'),
    blocked_until: z.iso.datetime().nullable(),
    blocked_reason: z
      .string()
      .nullable()
      .describe(
        '`unauthorized` without `blocked_until`: the provider refused the last call, and the next call tries again.',
      ),
  })
  .meta({ id: 'Key' })
export type KeyState = z.infer<typeof keySchema>

/** Reads the state of every configured key, then of keys that have matched in the past. */
export async function readKeys(
  tx: Executor,
  { keys, fetchRatePerMinute, now }: { keys: Keys; fetchRatePerMinute: number; now: Date },
): Promise<KeyState[]> {
  const budgets = await callBudgets(tx, now)
  // More keys than any installation has.
  const uses = await tx.select().from(keyUses).orderBy(desc(keyUses.last_match_at)).limit(1000)
  const useOf = new Map(uses.map((use) => [use.key_name, use]))
  const names = [
    ...keys.byName.keys(),
    ...uses.map(({ key_name }) => key_name).filter((name) => !keys.byName.has(name)),
  ]
  return names.map((name) => {
    const key = keys.byName.get(name)
    const use = useOf.get(name)
    const budget = budgets.get(name)
    const lastMatchAt = use?.last_match_at ?? null
    const recent = lastMatchAt !== null && now.getTime() - Date.parse(lastMatchAt) < 24 * 3_600_000
    const usable = key !== undefined && !key.retired
    const { until, reason } = blockOf(budget, now)
    return {
      id: name,
      name,
      configured: key !== undefined,
      source_name: key?.source.name ?? null,
      environment: key?.environment ?? null,
      retired: key?.retired ?? false,
      // Enough to distinguish two secrets. It does not help to guess the provider's random secrets of 128 bits and more.
      // For a short secret made up by a person, it would confirm a guess.
      fingerprint: key === undefined || key.signingSecret === '' ? null : sha256Hex(key.signingSecret).slice(0, 8),
      first_match_at: use?.first_match_at ?? null,
      last_match_at: lastMatchAt,
      matches: use?.matches ?? 0,
      still_matches: (key === undefined || key.retired) && recent,
      calls: budget?.calls ?? 0,
      quota_left: callsLeft(fetchRatePerMinute, budget),
      account_id: budget?.account_id ?? null,
      account_calls: budget?.account_calls ?? null,
      account_limit: budget?.account_limit ?? null,
      blocked_until: until?.toISOString() ?? null,
      blocked_reason: until !== undefined || usable ? (reason ?? null) : null,
    }
  })
}

/**
 * Returns the block of a key. A refusal outlasts its rest until a call is accepted (noteRecovered in key-health.ts
 * removes blocked_until then), or for an hour without any call.
 */
function blockOf(budget: CallBudget | undefined, now: Date): { until?: Date; reason?: string | null } {
  if (!budget || budget.blocked_until === null) return {}
  const [until, reason] = [new Date(budget.blocked_until), budget.blocked_reason]
  if (until > now) return { until, reason }
  return reason === 'unauthorized' && now.getTime() - until.getTime() < 3_600_000 ? { reason } : {}
}

/**
 * SQL condition: the time range in which a key can have matched, which spares filters by key a scan of everything. The
 * log is written with a delay, so the range is generous: a key without a row can only have matched just now, and one
 * that matched within the hour may match at any moment.
 */
export function whenKeyMatched(at: Column, keyName: string): SQL {
  const use = (what: SQL) => sql`(select ${what} from mediadock.key_uses where ${uses.key_name} = ${keyName})`
  return sql`${at} >= coalesce(${use(sql`${uses.first_match_at}`)}, now()) - interval '10 minutes'
    and ${at} <= coalesce(${use(sql`case when ${uses.last_match_at} < now() - interval '1 hour'
      then ${uses.last_match_at} + interval '1 hour' end`)}, 'infinity')`
}
