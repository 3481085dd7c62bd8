import { z } from 'zod'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { inArray, sql } from '../../platform/postgres/drizzle.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import { isInIdRange } from '../domain/delivery.ts'
import { deliveries, requests } from '../domain/schema.ts'
import { readWithin } from './deadline.ts'
import { giveUpClock, maxAttempts } from './give-up.ts'
import { isoAlways } from './page.ts'
import { namesKnownRequest, unsignedReasons } from './refusals.ts'

const arrivals = columnsOf(arriving.arrivals)
const d = columnsOf(deliveries, 'd')
const q = columnsOf(arriving.quarantine, 'q')
const senders = columnsOf(arriving.knownSenders)

export const giveUpSchema = z
  .object({
    id: z.string().meta({ description: 'The webhook id that was claimed.' }),
    webhook_id: z.string(),
    request_id: z
      .guid()
      .nullable()
      .meta({ description: 'As the body claims, where it is known: nothing of a refused webhook is trusted.' }),
    request_status: z
      .string()
      .nullable()
      .meta({ description: 'What is known of this request here: it may have landed by other ways.' }),
    reason: z.string().nullable().meta({ description: 'Why the last attempt failed here.' }),
    outcome: z.enum(['refused', 'unavailable']),
    attempts_seen: z.int(),
    attempts_spent: z.int().meta({
      description: `Of the ${maxAttempts} that the provider makes; with those that must have failed before they reached us.`,
    }),
    first_seen: z.iso.datetime(),
    last_seen: z.iso.datetime(),
    next_attempt_at: z.iso.datetime().nullable().meta({ description: 'At the earliest.' }),
    last_attempt_at: z.iso
      .datetime()
      .meta({ description: 'When the last of the attempts comes, at the earliest, or came.' }),
    given_up: z.boolean(),
  })
  .meta({ id: 'GiveUp' })
export type GiveUp = z.infer<typeof giveUpSchema>

/** Longer than the quarter of an hour that six attempts take, so that the morning still shows what was given up at night. */
const lookBackHours = 12
export const maxGiveUps = 200
const maxArrivals = 20_000

type Row = RowOf<typeof arriving.arrivals, 'outcome' | 'reason' | 'request_id'> & {
  /** Of those that claimed one. */
  webhook_id: string
  outcome: GiveUp['outcome']
  attempts: number
  first_seen: string
  last_seen: string
}

/**
 * The webhooks that failed here and have not been accepted since, as the
 * provider's clock sees them: first those that it will still send, the one that
 * ends soonest first; then those that it has given up, the newest first. Of what was
 * refused only what may be the provider's: it names a request that something authentic has
 * named, or is signed, and came from where something authentic came from. A scanner can
 * invent any number of ids.
 */
export async function listGiveUps(db: Database, now: Date): Promise<GiveUp[]> {
  return readWithin(db, (tx) => giveUps(tx, now))
}

/** The same inside another read. */
export async function giveUps(tx: Executor, now: Date): Promise<GiveUp[]> {
  const at = sql`${new Date(now.getTime() - lookBackHours * 3_600_000).toISOString()}::timestamptz`
  const unsigned = sql.param([...unsignedReasons])
  const rows = await tx.execute<Row>(sql`
    with known as materialized (select distinct ${senders.source} from mediadock.known_senders),
    failed as materialized (
      (select ${list(arrivals, 'webhook_id', 'outcome', 'reason', 'arrived_at', 'request_id')} from mediadock.arrivals
        -- Its signature was verified before it could not be stored.
        where ${arrivals.outcome} = 'unavailable' and ${arrivals.key_name} is not null
          and ${arrivals.arrived_at} >= ${at} and ${arrivals.webhook_id} is not null
        order by ${arrivals.arrived_at} desc limit ${maxArrivals})
      union all
      (select ${q.webhook_id}, 'refused', ${q.reason}, ${q.arrived_at}, ${q.request_id} from mediadock.quarantine q
        where ${q.arrived_at} >= ${at} and ${q.webhook_id} is not null
          and (${namesKnownRequest}
            or (${q.reason} <> all(${unsigned}::text[]) and ${q.source} in (select source from known)))
        order by ${q.arrived_at} desc nulls last, ${q.id} desc nulls last limit ${maxArrivals})
    ),
    webhooks as (
      select webhook_id, (array_agg(outcome order by arrived_at desc))[1] as outcome,
        (array_agg(reason order by arrived_at desc))[1] as reason, count(*)::int as attempts,
        min(arrived_at) as first_seen, max(arrived_at) as last_seen,
        (array_agg(request_id) filter (where request_id is not null))[1] as request_id
      from failed group by webhook_id
    ),
    open as (
      select *, row_number() over (partition by outcome, reason order by last_seen desc) as nth from webhooks w
      -- Not "not exists": for that the planner reads all deliveries.
      where (select 1 from mediadock.deliveries d
        where ${d.webhook_id} = w.webhook_id and ${isInIdRange(sql`${d.id}`, sql`w.webhook_id`)} limit 1) is null
    )
    -- The newest of each cause is always among them: a cause that is missing has none that is still open.
    select * from open order by nth = 1 desc, last_seen desc limit ${maxGiveUps}`)
  const found = rows.map((row) => toGiveUp(row, now))
  const statuses = await statusesOf(tx, found)
  return found.map((one) => ({ ...one, request_status: statuses.get(one.request_id ?? '') ?? null })).toSorted(inOrder)
}

function toGiveUp({ webhook_id, outcome, reason, attempts, request_id, ...row }: Row, now: Date): GiveUp {
  const [first_seen, last_seen] = [isoAlways(row.first_seen), isoAlways(row.last_seen)]
  const clock = giveUpClock({ attempts, lastSeenAt: new Date(last_seen), now })
  return {
    id: webhook_id,
    webhook_id,
    request_id,
    request_status: null,
    reason,
    outcome,
    attempts_seen: attempts,
    attempts_spent: clock.attemptsSpent,
    first_seen,
    last_seen,
    next_attempt_at: clock.nextAttemptAt?.toISOString() ?? null,
    last_attempt_at: clock.lastAttemptAt.toISOString(),
    given_up: clock.givenUp,
  }
}

async function statusesOf(tx: Executor, found: readonly GiveUp[]): Promise<Map<string, string>> {
  const ids = found.flatMap(({ request_id }) => (request_id === null ? [] : [request_id]))
  const { request_id, status } = requests
  const rows = await tx.select({ request_id, status }).from(requests).where(inArray(request_id, ids))
  return new Map(rows.map(({ request_id, status }) => [request_id, status]))
}

function inOrder(a: GiveUp, b: GiveUp): number {
  if (a.given_up !== b.given_up) return a.given_up ? 1 : -1
  const sooner = Date.parse(a.last_attempt_at) - Date.parse(b.last_attempt_at)
  return a.given_up ? -sooner : sooner
}
