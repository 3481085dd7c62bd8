import { columnsOf, list } from '../../platform/postgres/columns.ts'
import { and, eq, isNull, sql, type SQL } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { later } from '../../platform/postgres/time.ts'
import { storableText } from '../../platform/storable-text.ts'
import * as onCall from '../domain/on-call-schema.ts'
import type { Problem } from '../domain/problem.ts'

const issues = columnsOf(onCall.issues)
const i = columnsOf(onCall.issues, 'i')

/** An issue closes when its problem was not seen for this long, so a problem that comes and goes stays one issue. */
export const closeAfterSeconds = 60

export type Noted = { opened: number; closed: number }

/**
 * Keeps the problems of this moment as issues. A new problem opens an issue, a known one updates its issue, and an
 * issue whose problem was not seen for a minute is closed. Each cause has at most one open issue, so any number of
 * replicas may run this statement. The one that opens, worsens or closes an issue also writes its notice, if `tells`.
 */
export async function noteIssues(
  db: Database,
  problems: readonly Problem[],
  { now, tells }: { now: Date; tells: boolean },
): Promise<Noted> {
  const at = sql`${now.toISOString()}::timestamptz`
  const seen = problems.map(({ cause, severity, text, href, count, affected }) => ({
    cause: storableText(cause),
    severity,
    text: storableText(text),
    href: storableText(href),
    count: count ?? null,
    affected: (affected ?? []).map((one) => storableText(one)),
  }))
  const severities = sql.raw("array['notice', 'warning', 'critical']")
  const rises = sql`array_position(${severities}, ${i.severity}) < array_position(${severities}, excluded.severity)`
  // An issue becomes worse when its severity rises, or when its count reaches twice the notified one, and at least 10.
  const isWorse = sql`(${rises}
    or (excluded.severity <> 'notice' and coalesce(excluded.count, 0) >= 2 * greatest(${i.told_count}, 5)))`
  // A higher severity ends a mute.
  const isMuted = sql`(coalesce(${i.muted_until} > ${at}, false) and not ${rises})`
  const isTold = sql`(${tells}::boolean and excluded.severity <> 'notice' and ${isWorse} and not ${isMuted})`
  const rows = await db.execute<Noted>(sql`
    with seen as materialized (
      select * from jsonb_to_recordset(${JSON.stringify(seen)}::jsonb) as s (cause text, severity text, text text, href text, count int, affected text[])
      limit ${seen.length}
    ),
    -- Ordered by cause, so that two replicas never deadlock.
    noted as (
      insert into mediadock.issues as i (
        ${list(issues, 'cause', 'severity', 'text', 'href', 'count', 'peak', 'affected', 'opened_at', 'seen_at')},
        ${list(issues, 'untold', 'tell_at', 'told_count', 'muted_until', 'muted_by')})
      select cause, severity, text, href, count, count, affected, ${at}, ${at},
        case when ${tells}::boolean and severity <> 'notice' and muted.until is null then 'opened' end, ${at},
        case when severity <> 'notice' then coalesce(count, 0) end, muted.until, muted.by
      from seen left join lateral (
        -- A mute outlasts its issue: an issue that opens again is still muted.
        select ${i.muted_until} as until, ${i.muted_by} as by from mediadock.issues i where ${i.cause} = seen.cause and ${i.muted_until} > ${at}
        order by ${i.muted_until} desc limit 1
      ) as muted on true order by cause
      on conflict (cause) where closed_at is null do update set
        severity = excluded.severity, text = excluded.text, href = excluded.href, count = excluded.count, affected = excluded.affected,
        peak = greatest(${i.peak}, excluded.count), seen_at = greatest(${i.seen_at}, excluded.seen_at),
        worsened_at = case when ${isWorse} then ${at} else ${i.worsened_at} end,
        muted_until = case when ${rises} then null else ${i.muted_until} end,
        untold = case when not ${isTold} then ${i.untold} when ${i.untold} = 'opened' or ${i.told_count} is null then 'opened' else 'worsened' end,
        tell_at = case when ${isTold} then ${at} else ${i.tell_at} end,
        tell_tries = case when ${isTold} then 0 else ${i.tell_tries} end,
        told_count = case when ${isWorse} and excluded.severity <> 'notice' then coalesce(excluded.count, 0) else ${i.told_count} end
      returning i.xmax = 0 as is_new
    ),
    over as (
      select ${issues.id} from mediadock.issues where ${issues.closed_at} is null and ${issues.seen_at} < ${at} - make_interval(secs => ${closeAfterSeconds})
        and ${issues.cause} <> all(array(select cause from seen)) order by ${issues.id} for update skip locked
    ),
    closed as (
      update mediadock.issues as i set closed_at = ${at}, tell_at = ${at}, tell_tries = 0,
        untold = case when ${tells}::boolean and ${i.told_count} is not null and not coalesce(${i.muted_until} > ${at}, false) then 'closed' end
      from over where ${i.id} = over.id returning 1
    )
    select (select count(*)::int from noted where is_new) as opened, (select count(*)::int from closed) as closed`)
  return rows[0] ?? { opened: 0, closed: 0 }
}

/** Mutes an open issue until it becomes more severe, or ends the mute with 0 seconds. */
export async function muteIssue(
  db: Database,
  { id, now, seconds, by }: { id: number; now: SQL; seconds: number; by: string },
): Promise<{ cause: string; muted_until: string | null } | undefined> {
  const { cause, closed_at, muted_until } = onCall.issues
  const muted = { muted_until: later(now, seconds), muted_by: by, untold: null }
  const [issue] = await db
    .update(onCall.issues)
    .set(seconds > 0 ? muted : { muted_until: null, muted_by: null })
    .where(and(eq(onCall.issues.id, id), isNull(closed_at)))
    .returning({ cause, muted_until })
  return issue
}

/** Records a past outage of Postgres as a closed issue: one issue, however many replicas saw the outage. */
export async function noteOutage(
  db: Database,
  { since, now, tells }: { since: Date; now: Date; tells: boolean },
): Promise<void> {
  const at = sql`${now.toISOString()}::timestamptz`
  const text = 'Postgres could not be used. Webhooks were answered 503, and the provider sent them again.'
  await db.execute(sql`
    insert into mediadock.issues (${list(issues, 'cause', 'severity', 'text', 'href', 'opened_at', 'seen_at', 'closed_at', 'untold', 'tell_at')})
    select 'postgres_away', 'critical', ${text}, '/deliveries?view=arrivals&outcome=unavailable', ${since.toISOString()}::timestamptz, ${at}, ${at},
      case when ${tells}::boolean then 'closed' end, ${at}
    where not exists (select from mediadock.issues where ${issues.cause} = 'postgres_away' and ${issues.closed_at} > ${since.toISOString()}::timestamptz)`)
}
