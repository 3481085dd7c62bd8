import { and, eq, isNotNull, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { accountSchema, type Account } from '../../wire/schemas.ts'
import { callBudgets } from '../domain/budgets-schema.ts'
import { usableKeysOf, type GenerationKey, type Keys } from '../domain/keys.ts'
import { claimAccounts, noteBalance, type Spending } from './balances.ts'
import type { SourceReads } from './source-reads.ts'

type AccountsDeps = {
  db: Database
  reads: SourceReads
  keys: () => Keys
  time: SharedTime
  readSpending: (db: Database, keyName: string, now: SQL) => Promise<Spending>
  /** FETCH_RATE_PER_ACCOUNT_PER_MINUTE */
  limitPerMinute: number
  /** By key name: the API key with which this process last asked for the account. */
  asked: Map<string, string>
}

/**
 * One round: asks the source for the account of each key, once in the life of this process and again when the name
 * gets another API key. It stores the account beside the key's budget, with the limit that all keys of an account share
 * (takeCall). Until its account is known, a key has only its own limit. A single key needs no account. Once an hour it
 * also asks for the balance of each account with a live key.
 */
export async function noteAccounts(deps: AccountsDeps): Promise<{ more: false }> {
  const keys = deps.keys()
  // Only the API of the default source has accounts.
  const usable = usableKeysOf(keys, keys.defaultSource)
  if (usable.length > 1) await noteIds(deps, usable)
  await noteBalances(deps, usable)
  return { more: false }
}

async function noteIds(deps: AccountsDeps, usable: readonly GenerationKey[]): Promise<void> {
  const { db, limitPerMinute, asked } = deps
  await db
    .update(callBudgets)
    .set({ account_limit: limitPerMinute })
    .where(and(isNotNull(callBudgets.account_id), sql`${callBudgets.account_limit} is distinct from ${limitPerMinute}`))
  for (const { name, apiKey = '' } of usable) {
    if (asked.get(name) === apiKey) continue
    const account = await readAccount(deps, name)
    if (account === undefined) continue
    await db
      .update(callBudgets)
      .set({ account_id: account.account_id.slice(0, 255), account_limit: limitPerMinute })
      .where(eq(callBudgets.key_name, name))
    asked.set(name, apiKey)
  }
}

/** The sandbox charges nothing, so only live keys ask for a balance. */
async function noteBalances(deps: AccountsDeps, usable: readonly GenerationKey[]): Promise<void> {
  const { db, time } = deps
  const live = usable.filter(({ environment }) => environment === 'live').map(({ name }) => name)
  for (const keyName of await claimAccounts(db, live, time())) {
    const account = await readAccount(deps, keyName)
    if (account === undefined) continue
    const spending = await deps.readSpending(db, keyName, time())
    const { balance, usage_30d: usage } = account
    await noteBalance(db, { keyName, balance: balance.credits, usage, spending }, time())
  }
}

/** Returns undefined if the source gives no usable answer, or the key has no call left. A later round asks again. */
async function readAccount({ reads }: AccountsDeps, keyName: string): Promise<Account | undefined> {
  const answer = await reads({ path: '/v1/account' }, keyName).catch(() => undefined)
  return accountSchema.safeParse(answer?.status === 200 ? answer.body : undefined).data
}
