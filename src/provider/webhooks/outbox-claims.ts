import { turnOf } from '../../platform/fair-share.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import { leaseOf } from '../../platform/postgres/lease.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { deliveries } from '../domain/schema.ts'

/** Concurrent attempts of one process. An attempt that waits for its deadline costs little more than a socket. */
export const maxInFlight = 128
/** Concurrent attempts of one process to one host, which limits the connections that a receiver sees. */
export const maxPerHost = 16
/**
 * Concurrent attempts of one account to one host: half, so that unanswered attempts of one account leave places for
 * other accounts at the same host.
 */
const maxPerAccountAndHost = maxPerHost / 2
/**
 * Accounts, and hosts per account, that one claim looks at. A claim costs the square of this. More accounts take more
 * claims.
 */
export const maxWalked = 100

/** The lease of deliveries. Each claim is an attempt, so `attempts` is the fencing number. */
export const lease = leaseOf('d', {
  key: { id: deliveries.id },
  due_at: deliveries.due_at,
  claims: deliveries.attempts,
})

/** A delivery that this process may attempt until its lease ends. `attempts` is the number of this attempt, from 1. */
export type ClaimedDelivery = RowOf<
  typeof deliveries,
  'id' | 'account_id' | 'api_key_id' | 'url' | 'host' | 'body' | 'attempts' | 'max_attempts' | 'faults'
>

export type ClaimRequest = {
  now: SQL
  /** After this time, another process may claim the delivery. */
  leaseSeconds: number
  /** This process's running attempts. */
  inFlight: readonly Pick<ClaimedDelivery, 'account_id' | 'host'>[]
  /** Where the walk continues: for each account the last served host, and under the key '' the last account. */
  walk: Readonly<Record<string, string>>
}

export type Claimed = {
  claimed: ClaimedDelivery[]
  /** Where the walk continues in each account with a free place, and under '' among the accounts. Null at its end. */
  walked: Record<string, string | null>
}

/**
 * Claims due deliveries, round-robin by account, and within an account by host. If n accounts have due deliveries, one
 * account may hold 1/(3 + n) of the places that it holds or that are free, but at least one. So while places outnumber
 * these accounts, a claim leaves some for newcomers, even if all others send to hosts that never answer. Each host
 * costs one index probe, however many deliveries wait for it.
 * An attempt counts from its claim on, so a process that dies during an attempt never causes a seventh.
 */
export async function claimDue(db: Database, request: ClaimRequest): Promise<Claimed> {
  const rows = await db.execute<{ claimed: ClaimedDelivery[] | null; walked: Record<string, string | null> }>(
    statement(request),
  )
  const { claimed, walked } = one(rows, 'claiming deliveries')
  return { claimed: claimed ?? [], walked }
}

function statement(request: ClaimRequest): SQL {
  const { now, leaseSeconds, inFlight, walk } = request
  const free = sql`${maxInFlight - inFlight.length}::int`
  const isDue = sql`d.state = 'pending' and ${lease.isDue(now)} and d.attempts < d.max_attempts`
  const given = {
    walk,
    accounts: countBy(inFlight, ({ account_id }) => account_id),
    hosts: countBy(inFlight, ({ host }) => host),
    lanes: countBy(inFlight, ({ account_id, host }) => `${host} ${account_id}`),
  }
  return sql`
    with recursive given as (
      select g -> 'walk' as walk, g -> 'accounts' as accounts, g -> 'hosts' as hosts, g -> 'lanes' as lanes
      from (select ${JSON.stringify(given)}::jsonb as g) json
    ), accounts as (${pendingAccounts}
    ), seen as (${pendingHosts}
    ), room as (
      select account_id, greatest(1, (${free} + held) / (3 + n)) - held as places
      from (select account_id, coalesce((given.accounts ->> account_id)::int, 0) as held from accounts, given) a
        cross join (select count(distinct account_id)::int as n from seen where due_at <= ${now}) due
    ), due as (${takeTurns(isDue, now)}
    ), chosen as (
      select * from due where turn <= places and nth_at_host <= ${maxPerHost}::int
      order by turn, account_n limit ${free}
    ), claimed as (
      update provider.deliveries d set ${lease.claim(now, leaseSeconds)}
      from (
        select d.id from provider.deliveries d
        where d.id = any (array(select id from chosen)) and ${isDue} for update skip locked
      ) mine
      where d.id = mine.id
      returning d.id, d.account_id, d.api_key_id, d.url, d.host, d.body, d.attempts, d.max_attempts, d.faults
    )
    select (select jsonb_agg(claimed) from claimed) as claimed,
      (select jsonb_object_agg(key, continues_after) from (${walkedSoFar(free)}) walked) as walked`
}

/** Accounts with pending deliveries, after the last account of the previous walk. */
const pendingAccounts = sql`
  (select d.account_id, 1 as n from provider.deliveries d
   where d.state = 'pending' and d.account_id > (select coalesce(walk ->> '', '') from given)
   order by d.account_id limit 1)
  union all
  select next.account_id, a.n + 1 from accounts a cross join lateral (
    select d.account_id from provider.deliveries d
    where d.state = 'pending' and d.account_id > a.account_id order by d.account_id limit 1
  ) next
  where a.n < ${maxWalked}::int`

/** The hosts of these accounts, each with the time when its first delivery is due. */
const pendingHosts = sql`
  select a.n as account_n, a.account_id, lane.* from accounts a cross join lateral (
    with recursive lanes as (
      select coalesce(walk ->> a.account_id, '') as host, null::timestamptz as due_at, 0 as n from given
      union all
      select next.host, next.due_at, l.n + 1 from lanes l cross join lateral (
        select d.host, d.due_at from provider.deliveries d
        where d.state = 'pending' and d.account_id = a.account_id and d.host > l.host
        order by d.account_id, d.host, d.due_at limit 1
      ) next
      where l.n < ${maxWalked}::int
    )
    select host, due_at, n from lanes where n > 0
  ) lane`

/** Due deliveries whose account and host have a free place, numbered by turn within the account. */
function takeTurns(isDue: SQL, now: SQL): SQL {
  return sql`
    select next.id, s.account_id, s.account_n, s.host, s.n, room.places,
      ${turnOf(sql`s.account_id`, sql`next.k, s.n`)} as turn,
      ${turnOf(sql`s.host`, sql`next.k, s.account_n`)}
        + coalesce((given.hosts ->> s.host)::int, 0) as nth_at_host
    from seen s join room using (account_id) cross join given cross join lateral (
      select d.id, row_number() over (order by d.due_at) as k from provider.deliveries d
      where ${isDue} and d.account_id = s.account_id and d.host = s.host
      order by d.due_at limit greatest(0, least(
        room.places,
        ${maxPerHost}::int - coalesce((given.hosts ->> s.host)::int, 0),
        ${maxPerAccountAndHost}::int - coalesce((given.lanes ->> (s.host || ' ' || s.account_id))::int, 0)))
    ) next
    where s.due_at <= ${now} and room.places > 0`
}

/** The next walk begins after the last served account or host if places ran out, else where this walk ended. */
function walkedSoFar(free: SQL): SQL {
  return sql`
    select account_id as key, case
        when (select count(*) from due where account_id = room.account_id)
          > (select count(*) from chosen where account_id = room.account_id)
        then coalesce((select host from chosen where account_id = room.account_id order by n desc limit 1),
          given.walk ->> account_id)
        else (select host from seen where account_id = room.account_id and n = ${maxWalked}::int)
      end as continues_after
    from room cross join given where places > 0
    union all
    select '', case
        when (select count(*) from chosen) = ${free}
        then (select account_id from chosen order by turn desc, account_n desc limit 1)
        else (select account_id from accounts where n = ${maxWalked}::int)
      end`
}

function countBy<T>(items: readonly T[], keyOf: (item: T) => string): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const item of items) counts[keyOf(item)] = (counts[keyOf(item)] ?? 0) + 1
  return counts
}
