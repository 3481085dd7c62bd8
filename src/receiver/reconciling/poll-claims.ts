import { sql } from 'drizzle-orm'
import { columnsOf, list } from '../../runtime/postgres/columns.ts'
import { answered } from '../../runtime/postgres/errors.ts'
import type { Database } from '../../runtime/postgres/postgres.ts'
import type { RowOf } from '../../runtime/postgres/rows.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import type { Environment, Keys } from '../domain/keys.ts'
import * as schema from '../domain/schema.ts'
import type { PollOutcome } from '../domain/schema.ts'
import type { ResultAnswer } from '../fetching/fetcher.ts'
import { isDue } from './due.ts'

const requests = columnsOf(schema.requests)
const r = columnsOf(schema.requests, 'r')

/** What claiming and giving back need of the reconciler. */
type ClaimDeps = { db: Database; keys: () => Keys; clock: () => Date; stuckAfterSeconds: number }

export type Due = {
  requestId: string
  keyName: string | undefined
  environment: Environment | undefined
  doubted: boolean
  polls: number
  trackedAt: Date
  dueAt: string
}

const claimRows = 16
const leaseSeconds = 60
const pollPause = { baseMs: 30_000, capMs: 3_600_000 }
const maxDetail = 500

/** Whose turn a request waits for: its key's, or, where that is none of ours, everybody else's together; names are free to invent. */
export function lineOf(keys: Keys, keyName: string | undefined): string {
  return keyName !== undefined && keys.byName.has(keyName) ? keyName : ''
}

export function claimDue(deps: ClaimDeps, resting: ReadonlySet<string>): Promise<Due[]> {
  return claimWhere(
    deps,
    sql`${isDue({ now: deps.clock(), stuckAfterSeconds: deps.stuckAfterSeconds })}
        and case when ${requests.key_name} = any(${sql.param(deps.keys().all.map(({ name }) => name))}::text[])
          then ${requests.key_name} else '' end <> all(${sql.param([...resting])}::text[])`,
  )
}

export async function claimWhere({ db, clock }: ClaimDeps, condition: ReturnType<typeof sql>): Promise<Due[]> {
  const now = sql`${clock().toISOString()}::timestamptz`
  const rows = await db.execute<
    RowOf<typeof schema.requests, 'request_id' | 'key_name' | 'sandbox' | 'polls' | 'tracked_at'> & { doubted: boolean; due_at: string }
  >(sql`
    with due as (
      select ${requests.request_id}, coalesce(${requests.next_poll_at}, ${requests.tracked_at}) as due_at from mediadock.requests where ${condition}
      order by coalesce(${requests.next_poll_at}, ${requests.tracked_at}) limit ${claimRows} for update skip locked
    )
    update mediadock.requests r
    set ${requests.next_poll_at} = ${now} + make_interval(secs => ${leaseSeconds}), ${requests.polls} = ${r.polls} + 1
    from due where ${r.request_id} = due.request_id
    returning ${list(r, 'request_id', 'key_name', 'sandbox')}, coalesce(${r.key_source} = 'landed' and coalesce(${r.signed_sandbox}, ${r.sandbox}), false) as doubted, ${r.polls}, ${r.tracked_at}, due.due_at`)
  // What an update gives back has no order.
  const oldestFirst = answered(rows, 'claiming requests to poll').toSorted((a, b) => Date.parse(a.due_at) - Date.parse(b.due_at))
  return oldestFirst.map((row) => ({
    requestId: row.request_id,
    keyName: row.key_name ?? undefined,
    environment: row.sandbox === null ? undefined : row.sandbox ? 'sandbox' : 'live',
    doubted: row.doubted,
    polls: row.polls,
    trackedAt: new Date(row.tracked_at),
    dueAt: row.due_at,
  }))
}

type Again = { outcome: PollOutcome; detail?: string; status?: string }

/** Later each time, up to an hour; a request that is lost is not polled again, but a late webhook still lands. */
export async function reschedule({ db, clock }: ClaimDeps, one: Due, { outcome, detail, status }: Again): Promise<void> {
  const now = clock()
  const next = new Date(now.getTime() + jitteredPauseMs(one.polls, pollPause, Math.random))
  // Only where it may change: a reader's trigger on the status need not run for a poll.
  const started =
    status === 'IN_PROGRESS'
      ? sql`, ${requests.status} = case when ${requests.status} = 'IN_QUEUE' then 'IN_PROGRESS' else ${requests.status} end`
      : sql``
  await db.execute(sql`
    update mediadock.requests set ${requests.polled_at} = ${now.toISOString()}::timestamptz, ${requests.poll_outcome} = ${outcome},
      ${requests.poll_detail} = ${detail?.slice(0, maxDetail) ?? null},
      ${requests.next_poll_at} = ${outcome === 'lost' ? 'infinity' : next.toISOString()}::timestamptz ${started}
    where ${requests.request_id} = ${one.requestId} and ${requests.polls} = ${one.polls}`)
}

/** Postponed, so not counted: it keeps its place in the order, and behind a refused key it waits until that is tried again. */
export async function giveBack({ db, clock }: ClaimDeps, one: Due, answer: ResultAnswer): Promise<void> {
  const reason = answer.kind === 'postponed' ? answer.reason : answer.kind
  const dueAt = answer.kind === 'postponed' && answer.reason === 'unauthorized' ? answer.retryAt.toISOString() : one.dueAt
  await db.execute(sql`
    update mediadock.requests set ${requests.next_poll_at} = ${dueAt}::timestamptz, ${requests.polls} = ${requests.polls} - 1,
      ${requests.polled_at} = ${clock().toISOString()}::timestamptz, ${requests.poll_outcome} = 'postponed', ${requests.poll_detail} = ${reason}
    where ${requests.request_id} = ${one.requestId} and ${requests.polls} = ${one.polls}`)
}

export async function endPolling(db: Database, one: Due, now: Date): Promise<void> {
  await db.execute(sql`
    update mediadock.requests set ${requests.next_poll_at} = null, ${requests.polled_at} = ${now.toISOString()}::timestamptz, ${requests.poll_outcome} = 'result',
      ${requests.poll_detail} = null
    where ${requests.request_id} = ${one.requestId} and ${requests.polls} = ${one.polls}`)
}
