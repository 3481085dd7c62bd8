import { randomInt, randomUUID } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { sql } from 'drizzle-orm'
import postgres from 'postgres'
import { isOutage } from '../../../../src/platform/postgres/errors.ts'
import { createPool } from '../../../../src/platform/postgres/postgres.ts'
import { postgresTime } from '../../../../src/platform/postgres/time.ts'
import { parseBody } from '../../../../src/receiver/domain/delivery.ts'
import { createSequencer } from '../../../../src/receiver/feeding/sequencer.ts'
import { landReports } from '../../../../src/receiver/landing/land-reports.ts'
import { reportToLand, type ReportToLand } from '../../../../src/receiver/landing/report-to-land.ts'
import { imageResult } from '../../../support/provider-stand.ts'
import { defaultSource, keysOf, liveKey } from '../../../support/receiver.ts'
import { reportOf } from '../../../support/report.ts'
import { failed, okImage } from '../../../support/webhooks.ts'

const keys = keysOf(liveKey)
const chance = (share: number) => Math.random() < share
const pauseUpTo = (ms: number) => delay(Math.random() * ms)

/** The successive states of each request, as its writers know them. */
export type Written = { changes: number; byRequest: Map<string, string[]>; incomplete: string[] }

export function nothingWritten(): Written {
  return { changes: 0, byRequest: new Map(), incomplete: [] }
}

/** Lands until so many changes are written: at once, or in transactions that stay open for a while, some of which are rolled back. */
export async function write(url: string, written: Written, wanted: number): Promise<void> {
  const { db, close } = createPool({ url, max: 1 })
  while (written.changes < wanted) {
    const landings = someLandings(written.incomplete)
    const landAll = async () => {
      const { outcomes, failure } = await landReports(db, landings, { now: postgresTime(), keys: () => keys })
      if (failure) throw failure.error
      return outcomes
    }
    if (chance(0.1)) {
      await db.execute(sql`begin`)
      const outcomes = await landAll()
      await pauseUpTo(chance(0.1) ? 800 : 60)
      const isKept = chance(0.8)
      await db.execute(isKept ? sql`commit` : sql`rollback`)
      if (isKept) note(written, landings, outcomes)
    } else note(written, landings, await landAll())
    if (chance(0.3)) await pauseUpTo(20)
  }
  await close()
}

function note(written: Written, landings: readonly ReportToLand[], outcomes: Map<string, string>): void {
  for (const { request_id: requestId, status, media_complete: mediaComplete } of landings) {
    if (outcomes.get(requestId) !== 'landed') throw new Error(`a landing came to ${outcomes.get(requestId)}`)
    const each = [...(written.byRequest.get(requestId) ?? []), `${status} ${mediaComplete}`]
    written.byRequest.set(requestId, each)
    written.changes += 1
    if (each.length === 1) written.incomplete.push(requestId)
  }
}

/** New ones, by webhooks, and the provider's results of some that landed before. */
function someLandings(incomplete: string[]): ReportToLand[] {
  return Array.from({ length: randomInt(1, 12) }, () => {
    const [known] = chance(0.5) ? incomplete.splice(randomInt(Math.max(1, incomplete.length)), 1) : []
    return known === undefined ? byWebhook() : byResult(known)
  })
}

const origin = {
  via: 'delivery',
  source_name: null,
  reporting_key: 'live',
  environment: 'live',
} as const

function byWebhook(): ReportToLand {
  const id = randomUUID()
  const delivery = { delivery_id: id, claims: 0, webhook_first_id: id, webhook_last_id: id }
  const { body } = chance(0.5) ? okImage() : failed()
  const parsed = parseBody(defaultSource, body)
  if (parsed.kind !== 'report') throw new Error('the sample is no notification')
  const landing = reportToLand(parsed.report, { ...origin, ...delivery }, undefined)
  // By the ordinary statement, and by the general one.
  return chance(0.5) ? landing : { ...landing, flags: ['foreign_host'] }
}

function byResult(requestId: string): ReportToLand {
  return reportToLand(reportOf(imageResult(requestId)), { ...origin, via: 'poll' }, undefined)
}

/** One replica that gives positions until `signal` aborts and nothing is left; it may lose its connection. */
export async function sequence(
  url: string,
  { maxStatements, signal }: { maxStatements: number; signal: AbortSignal },
): Promise<void> {
  const { db, close } = createPool({ url, max: 1 })
  let isSequenced = false
  const onSequenced = () => {
    isSequenced = true
  }
  const sequencer = createSequencer({ db, signal, onSequenced }, { maxStatements })
  for (;;) {
    const isLast = signal.aborted
    isSequenced = false
    const done = await orCut(sequencer.runOnce)
    if (isLast && done?.more === false && !isSequenced) break
    if (chance(0.5)) await pauseUpTo(30)
  }
  await close()
}

/** Cuts the sequencer's connection at any moment. */
export async function cutSequencers(admin: postgres.Sql, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await pauseUpTo(400)
    await admin`
      select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and query like '%sequence_changes%' and pid <> pg_backend_pid() order by random() limit 1`
  }
}

/** A stranger's transactions: each has written, and keeps a snapshot that lets nothing be swept. */
export async function linger(url: string, signal: AbortSignal): Promise<void> {
  const stranger = postgres(url, { max: 1, onnotice: () => {} })
  while (!signal.aborted) {
    await stranger.begin('isolation level repeatable read', async (tx) => {
      await tx`select pg_current_xact_id(), count(*) from mediadock.feed`
      await pauseUpTo(3000)
    })
  }
  await stranger.end()
}

class DiesError extends Error {}

/**
 * Reads on by a place that is kept in the transaction of the work, which is to note in
 * `taken` what was read; dies before its commit or instead of it. Ends where `signal` has aborted and nothing is left.
 */
export async function read(url: string, { name, signal }: { name: string; signal: AbortSignal }): Promise<void> {
  const connect = () => postgres(url, { max: 1, onnotice: () => {} })
  let client = connect()
  await client`insert into mediadock.feed_consumers (name) values (${name})`
  for (;;) {
    const isLast = signal.aborted
    const moved = await orCut(() => client.begin((tx) => takePage(tx, name)))
    if (moved === undefined) {
      await client.end({ timeout: 0 })
      client = connect()
    } else if (isLast && moved === 0) break
    if (chance(0.3)) await pauseUpTo(20)
  }
  await client.end({ timeout: 1 })
}

async function takePage(tx: postgres.TransactionSql, name: string): Promise<number> {
  const moved = await tx`
    with consumer as (select position from mediadock.feed_consumers where name = ${name} for update),
    page as (
      select feed.* from mediadock.feed where position > (select mediadock.still_kept(position) from consumer)
      order by position limit ${randomInt(1, 200)}),
    worked as (
      insert into taken (reader, position, request_id, change)
      select ${name}, position, request_id, concat(status, ' ', media_complete::text) from page order by position)
    update mediadock.feed_consumers set position = (select max(position) from page), moved_at = now()
    where name = ${name} and exists (select from page) returning position`
  if (chance(0.05)) throw new DiesError('dies')
  if (chance(0.02)) await tx`select pg_terminate_backend(pg_backend_pid())`
  return moved.length
}

/** Undefined where the connection was cut, or the reader died. */
async function orCut<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof DiesError || isOutage(error)) return undefined
    throw error
  }
}
