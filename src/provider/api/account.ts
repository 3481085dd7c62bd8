import type { z } from 'zod'
import { HttpError } from '../../platform/http/http.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type { accountSchema } from '../../wire/schemas.ts'
import * as schema from '../domain/schema.ts'

/**
 * Reads the answer of `GET /v1/account`, which the console shows too (spec, Account; decisions, balance.credits and
 * usage_30d). Throws HttpError 404 for an unknown account.
 */
export async function readAccount(db: Database, accountId: string): Promise<z.infer<typeof accountSchema>> {
  const since = sql`now() - make_interval(days => 30)`
  const [row] = await db.execute<RowOf<typeof schema.accounts, 'available'> & { requests: number; spent: string }>(sql`
    select a.available,
      (select count(*)::int from provider.requests r
       where r.account_id = a.id and r.environment = 'live' and r.created_at > ${since}) as requests,
      (select coalesce(sum(e.amount), 0) from provider.ledger_entries e
       where e.account_id = a.id and e.book = 'settled' and e.created_at > ${since}) as spent
    from provider.accounts a where a.id = ${accountId}`)
  if (row === undefined) throw new HttpError(404, 'not_found', 'there is no such account')
  return {
    account_id: accountId,
    balance: { credits: Number(row.available) },
    usage_30d: { requests: row.requests, credits_spent: Number(row.spent) },
  }
}
