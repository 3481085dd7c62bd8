import { z } from 'zod'
import { columnsOf } from '../../platform/postgres/columns.ts'
import { type Column, count, desc, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import { quarantine } from '../domain/arrivals-schema.ts'
import { attempts } from '../domain/schema.ts'
import { d, r } from './aliases.ts'
import { foundRows } from './search.ts'

const a = columnsOf(attempts, 'a')

const causeErrorSchema = z.object({
  message: z.string().describe("Postgres's error for the newest of these deliveries."),
  model: z.string().nullable(),
  count: z.int(),
  landed_since: z.boolean().describe('Other results of the model landed since the first of these deliveries came.'),
})

export const causeSchema = z
  .object({
    reason: z.string(),
    count: z.int(),
    first_seen: z.iso.datetime(),
    last_seen: z.iso.datetime(),
    errors: z.array(causeErrorSchema).readonly().optional().describe('Of landing_failed: its five newest errors.'),
  })
  .meta({ id: 'Cause' })
export type Cause = z.infer<typeof causeSchema>

/** Counts the quarantine by reason, the most frequent first. */
export async function readQuarantineCauses(tx: Executor): Promise<Cause[]> {
  const { reason, arrived_at } = quarantine
  return tx.select(causeOf(reason, arrived_at)).from(quarantine).groupBy(reason).orderBy(desc(count()), reason)
}

/** Counts parked deliveries by reason, the most frequent first. With `since`, those that were parked since then. */
export async function readParkedCauses(tx: Executor, since?: Date): Promise<Cause[]> {
  const causes = await tx
    .select(causeOf(d.parked_reason, d.received_at))
    .from(d)
    .where(parkedSince(since))
    .groupBy(d.parked_reason)
    .orderBy(desc(count()), d.parked_reason)
  if (!causes.some(({ reason }) => reason === 'landing_failed')) return causes
  const errors = await errorsOfLanding(tx, since)
  return causes.map((cause) => (cause.reason === 'landing_failed' ? { ...cause, errors } : cause))
}

const anyUuid = '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}'

async function errorsOfLanding(tx: Executor, since: Date | undefined): Promise<NonNullable<Cause['errors']>> {
  return tx.execute<z.infer<typeof causeErrorSchema>>(sql`
    -- Grouped without ids, so that one error of many requests is one group.
    with failed as (
      select greatest(${d.received_at}, ${since?.toISOString() ?? null}::timestamptz) as since,
        ${d.received_at}, ${d.id}, newest.at, left(${r.model}, 100) as model,
        coalesce(newest.message, 'unknown error') as message
      from mediadock.deliveries d left join mediadock.requests r on ${r.request_id} = ${d.request_id}
      left join lateral (
        select ${a.attempted_at} as at,
          regexp_replace(left(${a.detail}, 500), '^landing_failed: ', '') as message
        from mediadock.attempts a
        where ${a.delivery_id} = ${d.id} and ${a.detail} is not null order by ${a.attempted_at} desc limit 1
      ) as newest on true
      where ${d.parked_reason} = 'landing_failed' and ${parkedSince(since)}
      order by ${d.received_at} desc nulls last, ${d.id} desc nulls last limit ${foundRows}
    ),
    grouped as (
      select (array_agg(message order by received_at desc, id desc))[1] as message, model, count(*)::int,
        min(since) as since, max(at) as at
      from failed group by regexp_replace(message, ${anyUuid}, '…', 'gi'), model order by max(at) desc nulls last limit 5
    )
    -- Postgres's error names the function of a trigger, and the catalog names the trigger.
    select message || coalesce(', trigger ' || left(triggers.names, 200), '') as message, model, count,
      exists (
        select from (
          select ${r.model} from mediadock.requests r
          where ${r.landed_at} is not null and ${r.landed_at} >= grouped.since
          order by ${r.landed_at} desc nulls last limit ${foundRows}
        ) as landed where left(landed.model, 100) = grouped.model
      ) as landed_since
    from grouped left join lateral (
      select string_agg(format('%I on %s', tgname, tgrelid::regclass), ' and ' order by tgname, tgrelid) as names
      from pg_trigger where tgparentid = 0 and tgfoid::regprocedure::text = substring(message from '.*, function (.*)$')
    ) as triggers on true order by at desc nulls last`)
}

/** SQL condition on `d`: parked since then, at its arrival or at a later try or replay. */
function parkedSince(since: Date | undefined): SQL {
  if (since === undefined) return sql`${d.parked_reason} is not null`
  const from = sql`${since.toISOString()}::timestamptz`
  return sql`${d.parked_reason} is not null and (${d.received_at} >= ${from} or ${d.id} = any(array(
    select ${a.delivery_id} from mediadock.attempts a where ${a.outcome} = 'parked' and ${a.attempted_at} >= ${from})))`
}

function causeOf(reason: Column, at: Column) {
  return {
    reason: sql<string>`${reason}`,
    count: count(),
    first_seen: sql`min(${at})`.mapWith(quarantine.arrived_at),
    last_seen: sql`max(${at})`.mapWith(quarantine.arrived_at),
  }
}
