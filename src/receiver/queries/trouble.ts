import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Database, Executor } from '../../platform/postgres/postgres.ts'
import { callBudgets } from '../domain/budgets-schema.ts'
import type { Keys } from '../domain/keys.ts'
import { maxCounted } from '../domain/limits.ts'
import * as onCall from '../domain/on-call-schema.ts'
import { maxIdsInAddress } from '../domain/problem.ts'
import * as schema from '../domain/schema.ts'
import { isOverdue, type StuckAfter } from '../reconciling/due.ts'
import { notCalled } from '../submitting/generations.ts'
import { d, r, q } from './aliases.ts'
import { mayBeTheProviders } from './give-ups.ts'
import { newestFirst, withIso } from './page.ts'

const budget = columnsOf(callBudgets)
const polls = columnsOf(onCall.polls)
const requests = columnsOf(schema.requests)

/** A source whose last polls got no usable answer. */
export type FailingSource = {
  /** The name of the source in SOURCES_FILE; `generation-queue` for the default one. */
  source_name: string
  failing_since: string
  /** The number of failed polls in a row within the last quarter of an hour, and the detail of the last one. */
  failed: number
  detail: string | null
}

/** Reads from the polls of all replicas in the last quarter of an hour which sources fail, the default source first. */
export async function readFailingSources(
  tx: Executor,
  { keys, now }: { keys: Keys; now: Date },
): Promise<FailingSource[]> {
  const since = sql`${new Date(now.getTime() - 15 * 60_000).toISOString()}::timestamptz`
  const sources = JSON.stringify(Object.fromEntries(keys.all.map(({ name, source }) => [name, source.name])))
  const rows = await tx.execute<FailingSource>(sql`
    with source_of_key as materialized (select key as name, value as source from jsonb_each_text(${sources}::jsonb)),
    recent as materialized (
      select ${polls.polled_at}, ${polls.detail}, ${polls.key_name}, ${polls.outcome} in ('unreachable', 'invalid') as failed
      from mediadock.polls where ${polls.polled_at} >= ${since} order by ${polls.polled_at} desc limit 2000
    ),
    of_source as (
      select k.source, polled_at, detail, failed, max(polled_at) filter (where not failed) over (partition by k.source)
        as answered_at
      from recent join source_of_key k on k.name = recent.key_name
    )
    select source as source_name, count(*)::int as failed, (array_agg(detail order by polled_at desc))[1] as detail,
      least(min(polled_at), (
        select min(${budget.failing_since}) from mediadock.call_budgets join source_of_key k on k.name = ${budget.key_name}
        where k.source = of_source.source and ${budget.refusals} = 0)) as failing_since
    from of_source where failed and (answered_at is null or polled_at > answered_at)
    group by source, answered_at
    -- One or two failures after an answered call may be an accident.
    having count(*) >= 3 or answered_at is null order by source <> ${keys.defaultSource.name}, source`)
  return rows.map((row) => withIso(row, 'failing_since'))
}

/** `source_name` is null for the default source: see storedName(). */
type StuckSubmits = { source_name: string | null; submits: number; oldest_at: string; error: string }

/**
 * Reads for each source the submits that were tried and have waited for longer than a minute, for a reason that is not
 * a limit of their key, with their most frequent error. A source that has accepted a submit since the newest of them
 * came is back, or refuses only some: it is left out.
 */
export async function readStuckSubmits(tx: Executor, now: Date): Promise<StuckSubmits[]> {
  const aMinuteAgo = sql`${now.toISOString()}::timestamptz - interval '1 minute'`
  const rows = await tx.execute<StuckSubmits>(sql`
    with waiting as materialized (
      select g.source_name, g.created_at, g.last_error from mediadock.generations g
      where g.state = 'pending' and g.next_attempt_at is not null
        -- A key that is limited or refused is a problem of its own.
        and g.last_error <> 'rate_limited' and not g.last_error like any(array[${notCalled + '%'}, '401 %'])
      limit ${maxCounted}
    ),
    accepted as materialized (
      select source_name, max(tracked_at) as at from (
        select ${r.source_name}, ${r.tracked_at}, ${r.idempotency_key} from mediadock.requests r
        order by ${newestFirst({ at: r.tracked_at, id: r.request_id })} limit 1000
      ) as newest where idempotency_key is not null group by source_name
    )
    select w.source_name, (count(*) filter (where w.created_at < ${aMinuteAgo}))::int as submits,
      min(w.created_at) as oldest_at, mode() within group (order by left(w.last_error, 200)) as error
    from waiting w left join accepted a on a.source_name is not distinct from w.source_name
    group by w.source_name
    having min(w.created_at) < ${aMinuteAgo} and coalesce(max(w.created_at) > max(a.at), true)
    order by w.source_name nulls first`)
  return rows.map((row) => withIso(row, 'oldest_at'))
}

/** For lost webhooks, younger results prove nothing, since their webhooks may still come. Older ones do not count. */
const [lateMinutes, lostLookBackMinutes] = [2, 15]

/** The newest results of requests that were submitted here, and how many of them a webhook reported. */
export type WebhooksSeen = {
  landed: number
  reported: number
  /** Their requests, newest first. */
  newest: string[]
  /** The longest time from an end at the provider to its landing; null if no end is known. */
  late_seconds: number | null
  /** The last webhook for a request that was submitted here; null if none of the newest 1,000 deliveries is for one. */
  last_webhook_at: string | null
}

/** Reads whether webhooks arrive for requests that were submitted with this receiver's webhook URL. */
export async function readWebhooksSeen(tx: Executor, now: Date): Promise<WebhooksSeen> {
  const ago = (minutes: number) => sql`${new Date(now.getTime() - minutes * 60_000).toISOString()}::timestamptz`
  const rows = await tx.execute<WebhooksSeen>(sql`
    select count(*)::int as landed, (count(*) filter (where source = 'webhook' or exists (
        select from mediadock.deliveries d where ${d.request_id} = newest.request_id)))::int as reported,
      coalesce(array_agg(request_id::text order by landed_at desc), '{}') as newest,
      max(extract(epoch from landed_at - completed_at))::int as late_seconds,
      (select max(received_at) from (
          select ${d.request_id}, ${d.received_at} from mediadock.deliveries d
          order by ${newestFirst({ at: d.received_at, id: d.id })} limit 1000
        ) as webhook
        -- A scalar subquery, since for "exists" the planner may read all requests.
        where (select 1 from mediadock.requests r where ${r.request_id} = webhook.request_id
          and ${r.idempotency_key} is not null limit 1) is not null) as last_webhook_at
    from (
      select ${list(requests, 'request_id', 'source', 'idempotency_key', 'landed_at', 'completed_at')}
      from mediadock.requests
      where landed_at between ${ago(lostLookBackMinutes)} and ${ago(lateMinutes)}
      order by landed_at desc nulls last limit ${maxIdsInAddress}
    ) as newest where idempotency_key is not null`)
  return withIso(one(rows, 'looking for the webhooks of the newest results'), 'last_webhook_at')
}

/** Recent results with media on hosts that MEDIA_HOSTS does not list, newest first, and those hosts. */
export type ForeignMedia = { requests: string[]; hosts: string[] }

/** Judges by the present setting, so that the problem ends as soon as the setting is right. */
export async function readForeignMedia(
  tx: Executor,
  { now, mediaHosts }: { now: Date; mediaHosts?: readonly string[] | undefined },
): Promise<ForeignMedia> {
  if (mediaHosts === undefined) return { requests: [], hosts: [] }
  const rows = await tx.execute<{ request_id: string; url: string }>(sql`
    select request_id, url from (
      select ${list(requests, 'request_id', 'landed_at')} from mediadock.requests
      where landed_at >= ${now.toISOString()}::timestamptz - make_interval(mins => ${lostLookBackMinutes})
      order by landed_at desc nulls last limit ${maxIdsInAddress}
    ) as newest join mediadock.media using (request_id) order by landed_at desc, request_id`)
  const foreign = rows.flatMap(({ request_id, url: link }) => {
    const url = URL.parse(link)
    // Links of the archive have other schemes.
    const isForeign = url !== null && /^https?:$/.test(url.protocol) && !mediaHosts.includes(url.host)
    return isForeign ? [{ request_id, host: url.host }] : []
  })
  const hosts = new Set(foreign.map(({ host }) => host))
  return { requests: [...new Set(foreign.map(({ request_id }) => request_id))], hosts: [...hosts] }
}

/** The number of recent deliveries that contradict the stored result. */
export type Contradictions = {
  /** Undecided: the provider's own result has not been read yet. */
  open: number
  /** Decided: the provider's own result is stored and differs from the delivery. */
  decided: number
  /** The requests of the newest open and of the newest decided one. */
  last_open: string | null
  last_decided: string | null
}

export async function readContradictions(tx: Executor, now: Date): Promise<Contradictions> {
  const since = sql`${new Date(now.getTime() - 86_400_000).toISOString()}::timestamptz`
  const lately = sql`${new Date(now.getTime() - 3_600_000).toISOString()}::timestamptz`
  const rows = await tx.execute<Contradictions>(sql`
    select (count(*) filter (where known.confirmed_at is null))::int as open,
      (count(*) filter (where known.confirmed_at is not null and received_at >= ${lately}))::int as decided,
      (array_agg(request_id::text order by received_at desc) filter (where known.confirmed_at is null))[1] as last_open,
      (array_agg(request_id::text order by received_at desc)
        filter (where known.confirmed_at is not null))[1] as last_decided
    from (
      select ${d.request_id}, ${d.received_at} from mediadock.deliveries d
      where ${d.flags} <> '{}' and 'contradiction' = any(${d.flags}) and ${d.received_at} >= ${since}
      order by ${newestFirst({ at: d.received_at, id: d.id })} limit 1000
    ) as flagged
    left join lateral (
      select ${r.confirmed_at} from mediadock.requests r where ${r.request_id} = flagged.request_id
    ) as known on true`)
  return one(rows, 'counting contradictions')
}

/** Counts, among the latest requests, those that no service had tracked before their webhook arrived. */
export async function countUntracked(db: Database): Promise<{ untracked: number; requests: number }> {
  // A thousand distinguish a service that never tracks from one that is sometimes late.
  const rows = await db.execute<{ untracked: number; requests: number }>(sql`
    select (count(*) filter (where key_source = 'landed' and landed_at = tracked_at))::int as untracked,
      count(*)::int as requests
    from (
      select ${r.key_source}, ${r.landed_at}, ${r.tracked_at} from mediadock.requests r
      order by ${newestFirst({ at: r.tracked_at, id: r.request_id })} limit 1000
    ) as latest`)
  return one(rows, 'counting untracked requests')
}

const i = columnsOf(onCall.issues, 'i')

/** Counts of items that need attention, each up to `maxOnBadge`. */
export type Counters = { issues: number; critical: number; parked: number; quarantined: number; overdue: number }

/** A badge shows "999+" beyond this, since every page counts these rows. */
export const maxOnBadge = 1000

/** Omits muted issues, notices and refused arrivals of strangers. */
export async function readCounters(tx: Executor, when: StuckAfter & { now: Date }): Promise<Counters> {
  const muted = sql`coalesce(${i.muted_until} > ${when.now.toISOString()}::timestamptz, false)`
  const isOpen = sql`${i.closed_at} is null and ${i.severity} <> 'notice' and not ${muted}`
  // Each count reads in the order of an index, so outdated statistics cannot cause a scan of a whole table.
  const rows = await tx.execute<Counters>(sql`
    select ${upTo(sql`mediadock.issues i where ${isOpen}`)} as issues,
      ${upTo(sql`mediadock.issues i where ${isOpen} and ${i.severity} = 'critical'`)} as critical,
      ${upTo(sql`mediadock.deliveries d where ${d.parked_reason} is not null
        order by ${newestFirst({ at: d.received_at, id: d.id })}`)} as parked,
      ${upTo(sql`(
        select ${q.reason}, ${q.request_id}, ${q.source} from mediadock.quarantine q
        order by ${newestFirst({ at: q.arrived_at, id: q.id })} limit ${maxOnBadge}
      ) as q where ${mayBeTheProviders}`)} as quarantined,
      ${upTo(sql`mediadock.requests r
        where ${isOverdue(when)} order by ${r.tracked_at}`)} as overdue`)
  return one(rows, 'counting items that need attention')
}

function upTo(rows: SQL): SQL {
  return sql`(select count(*)::int from (select from ${rows} limit ${maxOnBadge}) as counted)`
}
