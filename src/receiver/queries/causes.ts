import { z } from 'zod'
import { and, type Column, count, desc, isNotNull, sql } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { quarantine } from '../domain/arrivals-schema.ts'
import { deliveries } from '../domain/schema.ts'
import { readWithin } from './deadline.ts'
import { within } from './page.ts'

export const causeSchema = z
  .object({ reason: z.string(), count: z.int(), first_seen: z.iso.datetime(), last_seen: z.iso.datetime() })
  .meta({ id: 'Cause' })
export type Cause = z.infer<typeof causeSchema>

/** Counts the quarantine by reason, the most frequent first. */
export function readQuarantineCauses(db: Database): Promise<Cause[]> {
  return readWithin(db, async (tx) => {
    const { reason, arrived_at } = quarantine
    return tx.select(causeOf(reason, arrived_at)).from(quarantine).groupBy(reason).orderBy(desc(count()), reason)
  })
}

/** Counts parked deliveries by reason, the most frequent first. */
export function readParkedCauses(db: Database): Promise<Cause[]> {
  return readWithin(db, (tx) => parkedCauses(tx))
}

/** Counts parked deliveries by reason inside another read; with `since`, only those received since then. */
export async function parkedCauses(tx: Executor, since?: Date): Promise<Cause[]> {
  const { parked_reason, received_at } = deliveries
  return tx
    .select(causeOf(parked_reason, received_at))
    .from(deliveries)
    .where(and(isNotNull(parked_reason), within(received_at, { since: since?.toISOString() })))
    .groupBy(parked_reason)
    .orderBy(desc(count()), parked_reason)
}

function causeOf(reason: Column, at: Column) {
  return {
    reason: sql<string>`${reason}`,
    count: count(),
    first_seen: sql`min(${at})`.mapWith(quarantine.arrived_at),
    last_seen: sql`max(${at})`.mapWith(quarantine.arrived_at),
  }
}
