import { and, eq, isNotNull, sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { accountSchema } from '../../wire/schemas.ts'
import { callBudgets } from '../domain/budgets-schema.ts'
import type { Keys } from '../domain/keys.ts'
import type { ProviderReads } from './provider-reads.ts'

export type AccountsDeps = {
  db: Database
  reads: ProviderReads
  keys: () => Keys
  /** FETCH_RATE_PER_ACCOUNT_PER_MINUTE */
  limitPerMinute: number
  /** The API key with which this process asked for the account of each name. */
  asked: Map<string, string>
}

/**
 * One round: asks the provider for the account of each key, once in the life of this process and again when another
 * API key takes the name. It stores the account beside the key's budget, with the limit that all keys of an account
 * share (takeCall). Until its account is known, a key has only its own limit. A single key needs no account.
 */
export async function noteAccounts({ db, reads, keys, limitPerMinute, asked }: AccountsDeps): Promise<{ more: false }> {
  const usable = keys().all.filter(({ retired, apiKey }) => !retired && apiKey !== undefined)
  if (usable.length < 2) return { more: false }
  await db
    .update(callBudgets)
    .set({ account_limit: limitPerMinute })
    .where(and(isNotNull(callBudgets.account_id), sql`${callBudgets.account_limit} is distinct from ${limitPerMinute}`))
  for (const { name, apiKey = '' } of usable) {
    if (asked.get(name) === apiKey) continue
    // An unreachable provider, or a key without a call, is asked again in the next round.
    const answer = await reads({ path: '/v1/account' }, name).catch(() => undefined)
    const account = accountSchema.safeParse(answer?.status === 200 ? answer.body : undefined)
    if (!account.success) continue
    await db
      .update(callBudgets)
      .set({ account_id: account.data.account_id.slice(0, maxIdCharacters), account_limit: limitPerMinute })
      .where(eq(callBudgets.key_name, name))
    asked.set(name, apiKey)
  }
  return { more: false }
}

const maxIdCharacters = 255
