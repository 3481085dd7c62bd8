import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import type { Faults } from '../domain/faults.ts'
import * as schema from '../domain/schema.ts'

const deliveries = columnsOf(schema.deliveries)
const d = columnsOf(schema.deliveries, 'd')

/** The deliveries of one account to one host. */
export type Lane = { accountId: string; host: string }

/** After a lane in the walk over all of them, or, without a host, after all lanes of an account. */
export type LanePlace = { accountId: string; host: string | undefined }

/** Where the walk over all lanes begins. */
export const firstLane: Lane = { accountId: '', host: '' }

export type LanePage = {
  /** Those of the page in which something is due. */
  due: Lane[]
  /** After which lane the next page begins; undefined after the last one. */
  next: Lane | undefined
}

/**
 * Looks for lanes in which something is due by `dueBy`, those after `after`, at
 * most `limit` of them. One probe of the index for each lane, however much waits
 * in it.
 */
export async function findDueLanes(
  db: Database,
  { after, dueBy, limit }: { after: LanePlace; dueBy: Date; limit: number },
): Promise<LanePage> {
  const isAfter =
    after.host === undefined
      ? sql`${deliveries.account_id} > ${after.accountId}`
      : sql`(${deliveries.account_id}, ${deliveries.host}) > (${after.accountId}, ${after.host})`
  const rows = await db.execute<
    RowOf<typeof schema.deliveries, 'account_id' | 'host'> & { due: boolean; n: number }
  >(sql`
    with recursive lanes as (
      (select ${list(deliveries, 'account_id', 'host', 'due_at')}, 1 as n from provider.deliveries
       where ${deliveries.state} = 'pending' and ${isAfter}
       order by ${list(deliveries, 'account_id', 'host', 'due_at')} limit 1)
      union all
      select next.account_id, next.host, next.due_at, lanes.n + 1
      from lanes cross join lateral (
        select ${list(d, 'account_id', 'host', 'due_at')} from provider.deliveries d
        where ${d.state} = 'pending' and (${d.account_id}, ${d.host}) > (lanes.account_id, lanes.host)
        order by ${list(d, 'account_id', 'host', 'due_at')} limit 1
      ) next
      where lanes.n < ${limit}::int
    )
    select account_id, host, due_at <= ${dueBy.toISOString()}::timestamptz as due, n from lanes
    where due_at <= ${dueBy.toISOString()}::timestamptz or n = ${limit}::int
    order by n`)
  const lanes = rows.map((row) => ({
    ...row,
    accountId: row.account_id,
  }))
  const last = lanes.at(-1)
  return {
    due: lanes.filter(({ due }) => due).map(({ accountId, host }) => ({ accountId, host })),
    next: last?.n === limit ? { accountId: last.accountId, host: last.host } : undefined,
  }
}

/** A delivery that this process may attempt until its lease ends. */
export type ClaimedDelivery = Lane & {
  id: string
  token: string
  keyId: string
  url: string
  body: string
  /** The number of this attempt, from 1. */
  attempt: number
  maxAttempts: number
  faults: Faults | null
}

export type ClaimRequest = {
  token: string
  /** What was due by then is claimed. */
  dueBy: Date
  /** From when on the attempt may be taken over by another process. */
  leaseUntil: Date
  /** How many of which lane. */
  lanes: readonly (Lane & { count: number })[]
}

/**
 * Claims deliveries of the lanes that were chosen, the longest due of each first.
 * An attempt counts from its claim on: a process that dies in the middle of one
 * never makes it seven.
 */
export async function claimDue(
  db: Database,
  { token, dueBy, leaseUntil, lanes }: ClaimRequest,
): Promise<ClaimedDelivery[]> {
  const rows = await db.execute<
    RowOf<
      typeof schema.deliveries,
      'id' | 'account_id' | 'api_key_id' | 'url' | 'host' | 'body' | 'attempts' | 'max_attempts' | 'faults'
    >
  >(sql`
    with due as (
      select next.id
      from unnest(
        ${sql.param(lanes.map(({ accountId }) => accountId))}::text[], ${sql.param(lanes.map(({ host }) => host))}::text[],
        ${sql.param(lanes.map(({ count }) => count))}::int[]
      ) as lane (account_id, host, count) cross join lateral (
        select ${d.id} from provider.deliveries d
        where ${d.state} = 'pending' and ${d.account_id} = lane.account_id and ${d.host} = lane.host
          and ${d.due_at} <= ${dueBy.toISOString()}::timestamptz and ${d.attempts} < ${d.max_attempts}
        order by ${d.due_at} limit lane.count for update skip locked
      ) next
    )
    update provider.deliveries d
    set ${deliveries.attempts} = ${d.attempts} + 1, ${deliveries.lease_token} = ${token}::uuid, ${deliveries.due_at} = ${leaseUntil.toISOString()}
    from due where ${d.id} = due.id
    returning ${list(d, 'id', 'account_id', 'api_key_id', 'url', 'host', 'body', 'attempts', 'max_attempts', 'faults')}`)
  return rows.map((row) => ({
    id: row.id,
    token,
    accountId: row.account_id,
    keyId: row.api_key_id,
    url: row.url,
    host: row.host,
    body: row.body,
    attempt: row.attempts,
    maxAttempts: row.max_attempts,
    faults: row.faults,
  }))
}
