import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one } from '../../platform/postgres/errors.ts'
import type { Executor } from '../../platform/postgres/postgres.ts'
import { later } from '../../platform/postgres/time.ts'
import type { SliceWithPages } from '../console/slice-pages.ts'
import { maxCounted } from '../domain/limits.ts'
import { placeOf, type Problem, maxIdsInAddress } from '../domain/problem.ts'
import { clockTime, count } from '../on-call/figures.ts'
import { withIso } from '../queries/page.ts'
import { keptFrom } from '../upkeep/retention.ts'
import { expireMedia } from './removal.ts'

/** The archive: copies of media that outlast the provider's links. Inactive without MEDIA_ARCHIVE. */
export const archive: SliceWithPages = {
  name: 'archive',
  start: async (deps) => (await import('./role.ts')).startArchiving(deps),
  problems: async (tx, { settings, now }) =>
    settings.mediaArchive === undefined ? [] : archiveProblems(await readArchiveState(tx, now), now),
  prune: async ({ db, settings: { mediaArchive, mediaArchiveRetentionDays: days }, now, signal }) =>
    mediaArchive === undefined || days === undefined ? 0 : expireMedia(db, keptFrom(now, days), signal),
  internal: async () => ({ routes: (await import('./archived-files-api.ts')).archivedFiles }),
}

export function archiveProblems(archive: ArchiveState, now: Date): Problem[] {
  const { gone, failed } = archive
  const problems = [...waitingProblem(archive, now), ...expiringProblem(archive, now)]
  if (gone.count > 0) {
    const text =
      `The provider no longer serves ${count(gone.count, 'media', 'media')} that the archive tried to copy in the last ` +
      `hour${gone.trouble === null ? '' : `: ${gone.trouble}`}. No copy exists. ` +
      'Submit the requests again if their media are still needed: that costs credits and makes other media.'
    problems.push({ severity: 'warning', text, cause: 'media_gone', ...sizeOf(gone) })
  }
  if (failed.count > 0) {
    const were = count(failed.count, 'media was', 'media were')
    const text = `${were} not archived in the last hour. The last reason: ${failed.trouble ?? 'unknown'}.`
    problems.push({ severity: 'warning', text, cause: 'media_not_archived', ...sizeOf(failed) })
  }
  return problems
}

function sizeOf({ count, requests }: ArchiveState['gone']): Pick<Problem, 'count' | 'affected' | 'href'> {
  return { count, ...placeOf(requests) }
}

function waitingProblem(archive: ArchiveState, now: Date): Problem[] {
  const { waiting, due_since, links_end, store_trouble } = archive
  const wait = count(waiting.count, 'media waits', 'media wait')
  if (store_trouble !== null) {
    const howTo = store_trouble.includes('ENOSPC') ? 'Make room there' : 'Check the store and MEDIA_ARCHIVE'
    const text = [
      `The archive cannot be written, and ${wait} for a copy. The error: ${store_trouble}.`,
      links_end === null
        ? 'It is unknown when their links end.'
        : `The first of their links ends at ${clockTime(links_end, now)}, and its media is lost then.`,
      `Results still land. ${howTo}; copying then continues.`,
    ].join(' ')
    return [{ severity: 'critical', text, cause: 'archive_store', ...sizeOf(waiting) }]
  }
  // The archive counts as behind if a copy has been due for ten minutes.
  if (due_since === null || now.getTime() - Date.parse(due_since) < 10 * 60_000) return []
  const text = `The archive is behind: ${wait} to be copied, the oldest due since ${clockTime(due_since, now)}.`
  return [{ severity: 'warning', text, cause: 'archive_behind', ...sizeOf(waiting) }]
}

function expiringProblem({ expiring, expires_first }: ArchiveState, now: Date): Problem[] {
  if (expires_first === null) return []
  const at = clockTime(expires_first, now)
  const lost =
    expiring.count === 1
      ? `1 media will be lost at ${at} unless it is copied: its link ends then.`
      : `${expiring.count} media will be lost unless they are copied before their links end, the first at ${at}.`
  const last = expiring.trouble === null ? '' : ` Last failure: ${expiring.trouble}.`
  const text = `${lost}${last} Check the archive's store and the hosts of the media; they are copied first.`
  return [{ severity: 'critical', text, cause: 'links_expire', ...sizeOf(expiring) }]
}

/** Copies in one state, counted up to `maxCounted`, with their requests and the last reason of a failure. */
type Some = { count: number; requests: string[]; trouble: string | null }

export type ArchiveState = {
  /** The longest due first. */
  waiting: Some
  /** Since when the oldest copy is due; null if none waits. */
  due_since: string | null
  /** The first end of a link whose copy waits; null if none is known. */
  links_end: string | null
  /** The store's last error, among the copies that are due first; null without one. */
  store_trouble: string | null
  /** Copies given up in the last hour: gone at the provider, or failed for another reason. */
  gone: Some
  failed: Some
  /** Copies that still wait although their links end within a quarter of an hour, and the first of these ends. */
  expiring: Some
  expires_first: string | null
}

/** Reads the state of the archive for the problems of the first page. */
export async function readArchiveState(tx: Executor, now: Date): Promise<ArchiveState> {
  const at = sql`${now.toISOString()}::timestamptz`
  const since = sql`${new Date(now.getTime() - 3_600_000).toISOString()}::timestamptz`
  const copies = (which: SQL, order: SQL, most: number) => sql`(
    select request_id, due_at, expires_at, ended_at, fault, trouble, row_number() over (order by ${order}) as place
    from mediadock.media_copies where ${which} order by ${order} limit ${most})`
  const some = (chosen: SQL) => sql`(select jsonb_build_object('count', count(*),
    'requests', array(select request_id from ${chosen} group by request_id order by min(place) limit ${maxIdsInAddress}),
    'trouble', (array_agg(trouble order by place) filter (where trouble is not null))[1]) from ${chosen})`
  // Links that end within 15 minutes: a copy takes up to ten, and a person needs a few more to act.
  const expires = sql`state = 'waiting' and expires_at > ${at} and expires_at <= ${later(at, 15 * 60)}`
  const rows = await tx.execute<ArchiveState>(sql`
    with waiting as ${copies(sql`state = 'waiting'`, sql`due_at`, maxCounted)},
    given_up as ${copies(sql`state = 'failed' and ended_at >= ${since}`, sql`ended_at desc`, maxCounted)},
    gone as (select * from given_up where fault = 'gone'),
    failed as (select * from given_up where fault <> 'gone'),
    expiring as ${copies(expires, sql`expires_at`, maxCounted)}
    select ${some(sql`waiting`)} as waiting, (select min(due_at) from waiting) as due_since,
      (select min(expires_at) from mediadock.media_copies
        where state = 'waiting' and expires_at > ${at}) as links_end,
      (select trouble from waiting where place <= 200 and fault = 'store' order by place desc limit 1) as store_trouble,
      ${some(sql`gone`)} as gone, ${some(sql`failed`)} as failed, ${some(sql`expiring`)} as expiring,
      (select min(expires_at) from expiring) as expires_first`)
  return withIso(one(rows, 'reading the state of the archive'), 'due_since', 'links_end', 'expires_first')
}
