import { z } from 'zod'
import type { Database } from '../../runtime/postgres.ts'
import { remainingCalls } from '../call-budget.ts'
import { readOverview } from '../overview.ts'
import { readWithin } from './deadline.ts'
import { readRecent } from './recent.ts'

const at = z.iso.datetime()

export const statsSchema = z
  .object({
    pending: z.int().meta({ description: 'Deliveries that are accepted and not yet processed.' }),
    oldest_seconds: z.number().meta({ description: 'Age of the oldest of them.' }),
    parked: z.int(),
    overdue: z.int().meta({ description: 'Requests without a terminal state for longer than STUCK_AFTER_SECONDS.' }),
    backlog: z.object({ due: z.int(), minutes: z.int() }).meta({ description: 'What the reconciler has to ask for, and how long that takes within the budget of the keys.' }),
    quota_remaining: z.record(z.string(), z.int()).meta({ description: 'Calls to the provider that each key has left in this minute.' }),
    recent: z.object({
      minutes: z.int(),
      arrivals: z.int(),
      ack_p95_ms: z.number().nullable(),
      by_outcome: z.array(z.object({ outcome: z.string(), reason: z.string().nullable(), arrivals: z.int() })),
    }),
    arrivals: z.array(
      z.object({
        arrived_at: at,
        outcome: z.string(),
        reason: z.string().nullable(),
        webhook_id: z.string().nullable(),
        request_id: z.string().nullable(),
        key_name: z.string().nullable(),
        ack_ms: z.number(),
        folded: z.int(),
      }),
    ),
    results: z.array(
      z.object({
        request_id: z.guid(),
        status: z.string(),
        model: z.string().nullable(),
        media_complete: z.boolean(),
        error_message: z.string().nullable(),
        landed_at: at,
        media: z.array(z.object({ kind: z.string(), url: z.string() })),
      }),
    ),
  })
  .meta({ id: 'Stats' })
export type Stats = z.infer<typeof statsSchema>

export type StatsOptions = { now: Date; stuckAfterSeconds: number; fetchRatePerMinute: number }

/** What the console's first page shows. */
export async function readStats(db: Database, { now, stuckAfterSeconds, fetchRatePerMinute }: StatsOptions): Promise<Stats> {
  return readWithin(db, async (tx) => {
    const overview = await readOverview(tx, { now, stuckAfterSeconds, fetchRatePerMinute })
    const quota = await remainingCalls(tx, fetchRatePerMinute, now)
    return {
      pending: overview.pending,
      oldest_seconds: overview.oldestSeconds,
      parked: overview.parked,
      overdue: overview.overdue,
      backlog: overview.backlog,
      quota_remaining: Object.fromEntries(quota),
      recent: await readRecent(tx, now),
      arrivals: overview.arrivals.map((arrival) => ({
        arrived_at: arrival.arrivedAt.toISOString(),
        outcome: arrival.outcome,
        reason: arrival.reason ?? null,
        webhook_id: arrival.webhookId ?? null,
        request_id: arrival.requestId ?? null,
        key_name: arrival.keyName ?? null,
        ack_ms: arrival.ackMs,
        folded: arrival.folded,
      })),
      results: overview.results.map((result) => ({
        request_id: result.requestId,
        status: result.status,
        model: result.model ?? null,
        media_complete: result.mediaComplete,
        error_message: result.errorMessage ?? null,
        landed_at: result.landedAt.toISOString(),
        media: result.media.map(({ kind, url }) => ({ kind, url })),
      })),
    }
  })
}
