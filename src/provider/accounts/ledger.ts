import { and, eq, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import * as schema from '../domain/schema.ts'

/**
 * Credits in double-entry bookkeeping (spec, What the service does: reserved at submit, settled on success, fully
 * refunded on failure). This file provides SQL for the statement that causes a movement, so that both are committed
 * together.
 */

const movements = {
  reserve: { from: 'available', to: 'reserved' },
  settle: { from: 'reserved', to: 'settled' },
  refund: { from: 'reserved', to: 'available' },
} as const

/** Moves the credits of a request from one book to another. `rows` have account_id, request_id, amount and at. */
export function moveCredits(kind: keyof typeof movements, rows: SQL): SQL {
  const { from, to } = movements[kind]
  return sql`
    insert into provider.ledger_entries (account_id, request_id, book, kind, amount, created_at)
    select s.account_id, s.request_id, side.book, ${kind}, side.sign * s.amount, s.at
    from ${rows} s cross join (values (${from}::text, -1), (${to}::text, 1)) as side (book, sign)`
}

export type Grant = {
  accountId: string
  /** A decimal above zero, as text to avoid rounding. */
  credits: string
  /** With a reference, a repeated grant has no further effect. */
  reference?: string | undefined
}

/** Grants credits to an account, creating the account if it is new. Returns the balance. */
export async function grant(db: Database, { accountId, credits, reference }: Grant): Promise<string> {
  await openAccount(db, accountId)
  const [row] = await db.execute<RowOf<typeof schema.accounts, 'available'>>(sql`
    with entries as (
      insert into provider.ledger_entries (account_id, book, kind, amount, reference, created_at)
      select ${accountId}, side.book, 'grant', side.sign * ${credits}::numeric, ${reference ?? null}, now()
      from (values ('issued', -1), ('available', 1)) as side (book, sign)
      on conflict (reference, book) where reference is not null do nothing
      returning book, amount
    )
    update provider.accounts a
    set available = a.available + coalesce((select amount from entries where book = 'available'), 0)
    where a.id = ${accountId}
    returning a.available`)
  return row?.available ?? '0'
}

/** True if the grant with this reference has this account and these credits. */
export async function isGranted(
  db: Database,
  { accountId, credits, reference }: Grant & { reference: string },
): Promise<boolean> {
  const { id, account_id, book, amount, reference: given } = schema.ledgerEntries
  const isSame = and(eq(given, reference), eq(book, 'available'), eq(account_id, accountId), eq(amount, credits))
  return (await db.select({ id }).from(schema.ledgerEntries).where(isSame)).length > 0
}

/** Creates the account if it is new. Returns true if it was. */
export async function openAccount(db: Database, accountId: string): Promise<boolean> {
  const { id } = schema.accounts
  const opened = db.insert(schema.accounts).values({ id: accountId, created_at: sql`now()` })
  return (await opened.onConflictDoNothing().returning({ id })).length > 0
}

export type LedgerCheck = { ok: boolean; accounts: number; entries: number; problems: string[] }

/**
 * Checks the ledger's invariants in one snapshot: it sums to zero, each balance equals its entries, and each live
 * request has a reserve, which is open until the request has ended.
 */
export async function checkLedger(db: Database): Promise<LedgerCheck> {
  const [row] = await db.execute<{ accounts: number; entries: number; problems: string[] }>(sql`
    with balances as (
      select account_id, sum(amount) as total, sum(amount) filter (where book = 'available') as available
      from provider.ledger_entries group by account_id
    ), holds as (
      select request_id, sum(amount) filter (where book = 'reserved') as held,
        count(*) filter (where book = 'reserved' and kind = 'reserve') as reserves,
        count(*) filter (where book = 'reserved' and kind <> 'reserve') as ends, bool_or(kind = 'settle') as settled
      from provider.ledger_entries where request_id is not null group by request_id
    ), live as (
      select id, status, cost from provider.requests where environment = 'live'
    ), found as (
      select 'account ' || account_id || ': entries sum to ' || total || ', not 0' as problem from balances
      where total <> 0
      union all
      select 'account ' || a.id || ': balance ' || a.available || ', but its entries sum to ' || coalesce(b.available, 0)
      from provider.accounts a left join balances b on b.account_id = a.id
      where a.available <> coalesce(b.available, 0)
      union all
      select 'account ' || id || ': balance below zero' from provider.accounts where available < 0
      union all
      select 'request ' || id || ': ' || status || ' without a reserve' from live left join holds on request_id = id
      where coalesce(reserves, 0) <> 1
      union all
      select 'request ' || id || ': ' || status || ' but its reserve has no end' from live join holds on request_id = id
      where status in ('COMPLETED', 'FAILED', 'CANCELED') and (ends <> 1 or held <> 0)
      union all
      select 'request ' || id || ': ' || status || ' but its reserve has ended' from live join holds on request_id = id
      where status in ('IN_QUEUE', 'IN_PROGRESS') and (ends <> 0 or held <> cost)
      union all
      select 'request ' || id || ': ' || status || case when settled then ' but settled' else ' but refunded' end
      from live join holds on request_id = id where ends = 1 and settled <> (status = 'COMPLETED')
      union all
      select 'request ' || request_id || ': has entries but is no live request'
      from holds where not exists (select from live where id = request_id)
    )
    select (select count(*)::int from provider.accounts) as accounts,
      (select count(*)::int from provider.ledger_entries) as entries,
      coalesce((select array_agg(problem) from (select problem from found limit 100) shown), '{}') as problems`)
  const { accounts, entries, problems } = row ?? { accounts: 0, entries: 0, problems: [] }
  return { ok: problems.length === 0, accounts, entries, problems }
}
