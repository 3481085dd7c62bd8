import { senderOf } from '../../platform/http/sender.ts'
import { columnsOf } from '../../platform/postgres/columns.ts'
import { sql } from '../../platform/postgres/drizzle.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import type { RowOf } from '../../platform/postgres/rows.ts'
import * as arriving from '../domain/arrivals-schema.ts'
import { q, r } from './aliases.ts'
import { searchedRows } from './search.ts'

const arrivals = columnsOf(arriving.arrivals)

/**
 * Reasons that a sender without a secret can cause. Such an arrival may be the provider's only if it names a known
 * request.
 */
export const unsignedReasons: ReadonlySet<string | null> = new Set([
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
  const quarantined = await tx.execute<{ reason: string; named: number }>(sql`
    select ${q.reason}, (count(*) filter (where ${namesKnownRequest}))::int as named
    from mediadock.quarantine q where ${q.arrived_at} >= ${since} group by ${q.reason}`)
  const senders = await tx.selectDistinct({ sender: arriving.knownSenders.source }).from(arriving.knownSenders)
  const known = new Set(senders.map(({ sender }) => sender))
  const namedOf = new Map(quarantined.map(({ reason, named }) => [reason, named] as [string | null, number]))
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

/** SQL condition: the quarantine's row `q` names a request that is known here. */
export const namesKnownRequest = sql`${q.request_id} is not null
  and (select 1 from mediadock.requests r where ${r.request_id} = ${q.request_id} limit 1) = 1`

/**
 * SQL condition: the provider may have sent the arrival in the quarantine's row `q`. It names a known request, or it
 * is signed and its sender is known. Before the first authentic arrival no sender is known, and each signed one counts.
 */
export const mayBeTheProviders = sql`(${namesKnownRequest}
  or ${q.reason} <> all(${sql.param([...unsignedReasons])}::text[])
  and (${q.source} in (select source from mediadock.known_senders)
    or not exists (select from mediadock.known_senders)))`

function sum(rows: readonly { arrivals: number }[]): number {
  return rows.reduce((all, { arrivals }) => all + arrivals, 0)
}
