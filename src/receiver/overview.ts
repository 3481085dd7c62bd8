import { sql } from 'drizzle-orm'
import type { Database } from '../runtime/postgres.ts'
import { readBacklog, type Backlog } from './backlog.ts'
import { depth } from './inbox.ts'
import { countOverdue } from './reconciler.ts'

export type ArrivalRow = {
  arrivedAt: Date
  outcome: string
  reason: string | undefined
  webhookId: string | undefined
  requestId: string | undefined
  keyName: string | undefined
  ackMs: number
  folded: number
}

export type ResultRow = {
  requestId: string
  status: string
  model: string | undefined
  mediaComplete: boolean
  errorMessage: string | undefined
  landedAt: Date
  media: { kind: string; url: string }[]
}

export type Overview = {
  arrivals: ArrivalRow[]
  results: ResultRow[]
  pending: number
  oldestSeconds: number
  parked: number
  overdue: number
  backlog: Backlog
}

const newest = 20

/** What the console's first page shows. */
export async function readOverview(
  db: Database,
  { now, stuckAfterSeconds, fetchRatePerMinute }: { now: Date; stuckAfterSeconds: number; fetchRatePerMinute: number },
): Promise<Overview> {
  const [arrivals, results, { pending, oldestSeconds }, parked, overdue, backlog] = await Promise.all([
    latestArrivals(db),
    latestResults(db),
    depth(db, now),
    countParked(db),
    countOverdue(db, { now, stuckAfterSeconds }),
    readBacklog(db, { now, stuckAfterSeconds, fetchRatePerMinute }),
  ])
  return { arrivals, results, pending, oldestSeconds, parked, overdue, backlog }
}

async function latestArrivals(db: Database): Promise<ArrivalRow[]> {
  const rows = await db.execute<{
    arrived_at: string
    outcome: string
    reason: string | null
    webhook_id: string | null
    request_id: string | null
    key_name: string | null
    ack_ms: number
    folded: number
  }>(sql`
    select arrived_at, outcome, reason, webhook_id, request_id, key_name, ack_ms, folded
    from mediadock.arrivals order by arrived_at desc, id desc limit ${newest}`)
  return rows.map((row) => ({
    arrivedAt: new Date(row.arrived_at),
    outcome: row.outcome,
    reason: row.reason ?? undefined,
    webhookId: row.webhook_id ?? undefined,
    requestId: row.request_id ?? undefined,
    keyName: row.key_name ?? undefined,
    ackMs: row.ack_ms,
    folded: row.folded,
  }))
}

async function latestResults(db: Database): Promise<ResultRow[]> {
  const rows = await db.execute<{
    request_id: string
    status: string
    model: string | null
    media_complete: boolean
    error_message: string | null
    landed_at: string
    media: { kind: string; url: string }[] | null
  }>(sql`
    select request_id, status, model, media_complete, error_message, landed_at, (
      select json_agg(json_build_object('kind', kind, 'url', url) order by kind, position)
      from mediadock.media where media.request_id = requests.request_id) as media
    from mediadock.requests where landed_at is not null order by landed_at desc nulls last limit ${newest}`)
  return rows.map((row) => ({
    requestId: row.request_id,
    status: row.status,
    model: row.model ?? undefined,
    mediaComplete: row.media_complete,
    errorMessage: row.error_message ?? undefined,
    landedAt: new Date(row.landed_at),
    media: row.media ?? [],
  }))
}

async function countParked(db: Database): Promise<number> {
  const [row] = await db.execute<{ n: string }>(sql`select count(*) as n from mediadock.deliveries where parked_reason is not null`)
  return Number(row?.n ?? 0)
}
