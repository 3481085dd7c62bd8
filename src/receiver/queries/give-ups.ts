import { z } from 'zod'
import { senderOf } from '../../platform/http/sender.ts'
import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import { doublingPauseMs, webhookAttempts } from '../../wire/backoff.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import { isInIdRange } from '../domain/delivery.ts'
import { maxPageItems } from '../domain/page-limits.ts'
import { d, q, r } from './aliases.ts'
import { withIso } from './page.ts'
import { searchedRows } from './search.ts'

const arrivals = columnsOf(arriving.arrivals)
const senders = columnsOf(arriving.knownSenders)

export const giveUpSchema = z
  .object({
    id: z.string().describe('The webhook id that the arrival states.'),
    webhook_id: z.string(),
    request_id: z.guid().nullable().describe('The id that the body states, if known. It is not trusted.'),
    request_status: z.string().nullable().describe('Its present status. It may have landed in another way.'),
    request_key_name: z.string().nullable().describe('Its key. Where no secret matches, check the secret of this key.'),
    reason: z.string().nullable().describe('Why the newest attempt failed here.'),
    outcome: z.enum(['refused', 'unavailable']),
    attempts_seen: z.int(),
    attempts_spent: z
      .int()
      .describe('Attempts by the schedule of the default source, with those that failed on the way.'),
    first_seen: z.iso.datetime(),
    last_seen: z.iso.datetime(),
    next_attempt_at: z.iso.datetime().nullable().describe('The earliest time of the next attempt.'),
    last_attempt_at: z.iso.datetime().describe('The earliest time of the final attempt, past or future.'),
    given_up: z.boolean(),
  })
  .meta({ id: 'GiveUp' })
export type GiveUp = z.infer<typeof giveUpSchema>

/**
 * Lists webhooks that failed here and were not accepted since. First those that the provider will send again, the one
 * with the earliest last attempt first. Then those given up, newest first. A scanner can invent any number of ids, so a
 * refused arrival is listed only if it may be the provider's: it names a known request, or it is signed and its sender
 * is known.
 */
export async function listGiveUps(tx: Executor, now: Date): Promise<GiveUp[]> {
  // Longer than the quarter of an hour of six attempts, so that the morning still shows webhooks given up at night.
  const at = sql`${new Date(now.getTime() - 12 * 3_600_000).toISOString()}::timestamptz`
  const rows = await tx.execute<Omit<GiveUp, keyof GiveUpClock>>(sql`
    with known as materialized (select distinct ${senders.source} from mediadock.known_senders),
    failed as materialized (
      (select ${list(arrivals, 'webhook_id', 'outcome', 'reason', 'arrived_at', 'request_id')} from mediadock.arrivals
        -- With a key name, its signature was valid and only storing failed.
        where ${arrivals.outcome} = 'unavailable' and ${arrivals.key_name} is not null
          and ${arrivals.arrived_at} >= ${at} and ${arrivals.webhook_id} is not null
        order by ${arrivals.arrived_at} desc limit ${searchedRows})
      union all
      (select ${q.webhook_id}, 'refused', ${q.reason}, ${q.arrived_at}, ${q.request_id} from mediadock.quarantine q
        where ${q.arrived_at} >= ${at} and ${q.webhook_id} is not null
          and (${namesKnownRequest}
            or (${isSigned} and ${q.source} in (select source from known)))
        order by ${q.arrived_at} desc nulls last, ${q.id} desc nulls last limit ${searchedRows})
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
      -- A scalar subquery, since for "not exists" the planner reads all deliveries. Order and inner limit make it read
      -- the range of ids: see isAlone of landing/ordinary-sql.ts.
      where (select 1 from (select ${d.webhook_id} from mediadock.deliveries d
          where ${isInIdRange(sql`${d.id}`, sql`w.webhook_id`)} order by ${d.id} limit 16) as d
        where d.webhook_id = w.webhook_id limit 1) is null
    )
    -- The newest of each cause comes first, so a cause that is missing in the answer has no open webhook.
    select webhook_id as id, webhook_id, found.request_id, ${r.status} as request_status, ${r.key_name} as request_key_name,
      reason, outcome, attempts as attempts_seen, first_seen, last_seen
    from (select * from open order by nth = 1 desc, last_seen desc limit ${maxPageItems}) as found
    left join mediadock.requests r on ${r.request_id} = found.request_id order by nth = 1 desc, last_seen desc`)
  const found = rows.map((row): GiveUp => {
    const seen = withIso(row, 'first_seen', 'last_seen')
    return { ...seen, ...giveUpClock({ attempts: seen.attempts_seen, lastSeenAt: new Date(seen.last_seen), now }) }
  })
  return found.toSorted(inOrder)
}

type GiveUpClock = Pick<GiveUp, 'attempts_spent' | 'next_attempt_at' | 'last_attempt_at' | 'given_up'>

/** The spec's delivery rule 3: pauses doubling from 30 s, and a dispatch run every 30 s. */
const pause = { baseMs: 30_000, capMs: 3_600_000 }

/**
 * Estimates what the provider does with a webhook that failed here, by the schedule of the default source. The
 * schedules of other sources are not known here. Only attempts that arrive are visible. An attempt that is two dispatch
 * runs (60 s) late counts as made.
 */
export function giveUpClock(seen: { attempts: number; lastSeenAt: Date; now: Date }): GiveUpClock {
  let spent = Math.min(Math.max(1, seen.attempts), webhookAttempts)
  let last = seen.lastSeenAt.getTime()
  while (spent < webhookAttempts && last + doublingPauseMs(spent, pause) + 60_000 < seen.now.getTime()) {
    last += doublingPauseMs(spent, pause)
    spent += 1
  }
  const next = spent < webhookAttempts ? new Date(last + doublingPauseMs(spent, pause)).toISOString() : null
  let end = last
  for (let left = spent; left < webhookAttempts; left += 1) end += doublingPauseMs(left, pause)
  const last_attempt_at = new Date(end).toISOString()
  return { attempts_spent: spent, next_attempt_at: next, last_attempt_at, given_up: next === null }
}

function inOrder(a: GiveUp, b: GiveUp): number {
  if (a.given_up !== b.given_up) return a.given_up ? 1 : -1
  const sooner = Date.parse(a.last_attempt_at) - Date.parse(b.last_attempt_at)
  return a.given_up ? -sooner : sooner
}

/**
 * Reasons that a sender without a secret can cause. Such an arrival may be the provider's only if it names a known
 * request.
 */
const unsignedReasons: ReadonlySet<string | null> = new Set([
  'missing_header',
  'malformed_header',
  'invalid_webhook_id',
])
/** Reasons that need a valid signature with one of our secrets. */
const ours: ReadonlySet<string | null> = new Set(['timestamp_too_old', 'timestamp_in_future'])

/** The refused arrivals of a time range that may be the provider's, by reason. */
export type Refusals = {
  /** By reason: the share, from 0 to 1, of a known sender, with a signature of ours, or claiming a known request. */
  provided: ReadonlyMap<string | null, number>
  /** The reasons of those still in the quarantine. */
  kept: ReadonlySet<string | null>
}

/** Separates arrivals that the provider may have sent from those of strangers, by earlier authentic arrivals. */
export async function readRefusals(tx: Executor, from: Date): Promise<Refusals> {
  const since = sql`${from.toISOString()}::timestamptz`
  const rows = await tx.execute<RowOf<typeof arriving.arrivals, 'reason' | 'remote'> & { arrivals: number }>(sql`
    select reason, remote, sum(1 + folded)::int as arrivals from (
      select ${arrivals.reason}, ${arrivals.remote}, ${arrivals.folded} from mediadock.arrivals
      where ${arrivals.outcome} = 'refused' and ${arrivals.arrived_at} >= ${since}
      order by ${arrivals.arrived_at} desc, ${arrivals.id} desc limit ${searchedRows}
    ) as newest group by reason, remote order by arrivals desc limit 500`)
  if (rows.length === 0) return { provided: new Map(), kept: new Set() }
  const quarantined = await tx.execute<{ reason: string | null; named: number }>(sql`
    select ${q.reason}, (count(*) filter (where ${namesKnownRequest}))::int as named
    from mediadock.quarantine q where ${q.arrived_at} >= ${since} group by ${q.reason}`)
  const senders = await tx.selectDistinct({ sender: arriving.knownSenders.source }).from(arriving.knownSenders)
  const known = new Set(senders.map(({ sender }) => sender))
  const namedOf = new Map(quarantined.map(({ reason, named }) => [reason, named]))
  const provided = new Map<string | null, number>()
  for (const [reason, some] of Map.groupBy(rows, (row) => row.reason)) {
    // In a flood only some arrivals have a row with a sender. The others are assumed to have the same shares.
    const sent = some.filter(({ remote }) => remote !== null)
    const fromKnown = sent.filter(({ remote }) => known.has(senderOf(remote ?? undefined)))
    const signed = unsignedReasons.has(reason) ? 0 : sum(fromKnown) / Math.max(1, sum(sent))
    const own = ours.has(reason) ? 1 : signed
    provided.set(reason, Math.min(1, Math.max(own, (namedOf.get(reason) ?? 0) / Math.max(1, sum(some)))))
  }
  return { provided, kept: new Set(quarantined.map(({ reason }) => reason)) }
}

/** SQL condition: the quarantine's row `q` was refused for a reason that needs a secret. */
const isSigned = sql`${q.reason} <> all(${sql.param([...unsignedReasons])}::text[])`

/** SQL condition: the quarantine's row `q` names a request that is known here. */
const namesKnownRequest = sql`${q.request_id} is not null
  and (select 1 from mediadock.requests r where ${r.request_id} = ${q.request_id} limit 1) = 1`

/**
 * SQL condition: the provider may have sent the arrival in the quarantine's row `q`. It names a known request, or it
 * is signed and its sender is known. Before the first authentic arrival no sender is known, and each signed one counts.
 */
export const mayBeTheProviders = sql`(${namesKnownRequest}
  or ${isSigned}
  and (${q.source} in (select source from mediadock.known_senders)
    or not exists (select from mediadock.known_senders)))`

function sum(rows: readonly { arrivals: number }[]): number {
  return rows.reduce((all, { arrivals }) => all + arrivals, 0)
}
