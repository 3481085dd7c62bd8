import { z } from 'zod'
import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import * as schema from '../domain/schema.ts'
import { readWithin } from './deadline.ts'
import { isoAlways } from './page.ts'

const deliveries = columnsOf(schema.deliveries)
const quarantine = columnsOf(arriving.quarantine)

export const causeSchema = z
  .object({ reason: z.string(), count: z.int(), first_seen: z.iso.datetime(), last_seen: z.iso.datetime() })
  .meta({ id: 'Cause' })
export type Cause = z.infer<typeof causeSchema>

/** Why what lies in the quarantine was refused: the most frequent cause first. */
export function readQuarantineCauses(db: Database): Promise<Cause[]> {
  return readWithin(db, (tx) =>
    causes(tx, sql`select ${quarantine.reason}, ${quarantine.arrived_at} as at from mediadock.quarantine`),
  )
}

/** Why deliveries are parked: the most frequent cause first. */
export function readParkedCauses(db: Database): Promise<Cause[]> {
  return readWithin(db, (tx) => parkedCauses(tx))
}

/** The same inside another read; only of what arrived since, where that is given. */
export function parkedCauses(tx: Executor, since?: Date): Promise<Cause[]> {
  const recent = since === undefined ? sql`` : sql`and ${deliveries.received_at} >= ${since.toISOString()}::timestamptz`
  return causes(
    tx,
    sql`select ${deliveries.parked_reason} as reason, ${deliveries.received_at} as at from mediadock.deliveries where ${deliveries.parked_reason} is not null ${recent}`,
  )
}

async function causes(tx: Executor, rows: SQL): Promise<Cause[]> {
  const found = await tx.execute<Cause>(sql`
    select reason, count(*)::int as count, min(at) as first_seen, max(at) as last_seen from (${rows}) as rows
    group by reason order by count desc, reason`)
  return found.map((cause) => ({
    ...cause,
    first_seen: isoAlways(cause.first_seen),
    last_seen: isoAlways(cause.last_seen),
  }))
}
