import type { SliceWithPages } from '../console/slice-pages.ts'
import { issueOf, type Problem } from '../domain/problem.ts'
import { clockTime, count } from '../on-call/figures.ts'
import { keptFrom } from '../upkeep/retention.ts'
import { readArchiveState, type ArchiveState } from './archive-state.ts'
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

/** Returns the problems of the archive; none without MEDIA_ARCHIVE. */
export function archiveProblems(archive: ArchiveState | undefined, now: Date): Problem[] {
  if (archive === undefined) return []
  const {
    waiting,
    due_since,
    links_end,
    store_trouble,
    gone,
    gone_requests,
    gone_trouble,
    failed,
    failed_requests,
    failed_trouble,
  } = archive
  const problems: Problem[] = []
  const wait = count(waiting, 'media waits', 'media wait')
  if (store_trouble !== null) {
    const text =
      `The archive cannot be written: ${store_trouble}. ${wait} for a copy. ` +
      (links_end === null
        ? 'It is unknown when their links end. '
        : `The first of their links ends at ${clockTime(links_end, now)}, and its media is lost then. `) +
      'Results still land. Make room, or correct MEDIA_ARCHIVE; copying then continues.'
    problems.push({
      severity: 'critical',
      text,
      cause: 'archive_store',
      count: waiting,
      href: issueOf('archive_store'),
    })
  } else if (due_since !== null && now.getTime() - Date.parse(due_since) >= 10 * 60_000) {
    // The archive counts as behind if a copy has been due for this long.
    const text = `The archive is behind: ${wait} to be copied, the oldest due since ${clockTime(due_since, now)}.`
    problems.push({
      severity: 'warning',
      text,
      cause: 'archive_behind',
      count: waiting,
      href: issueOf('archive_behind'),
    })
  }
  problems.push(...expiringProblem(archive, now))
  if (gone > 0) {
    const text =
      `The provider no longer serves ${count(gone, 'media', 'media')} that the archive tried to copy in the last ` +
      `hour${gone_trouble === null ? '' : `: ${gone_trouble}`}. No copy exists. ` +
      'Submit the requests again if their media are still needed.'
    problems.push({ severity: 'warning', text, count: gone, ...placeOf('media_gone', gone_requests) })
  }
  if (failed > 0) {
    const text =
      `${count(failed, 'media was', 'media were')} not archived in the last hour. The last reason: ` +
      `${failed_trouble ?? 'unknown'}.`
    problems.push({ severity: 'warning', text, count: failed, ...placeOf('media_not_archived', failed_requests) })
  }
  return problems
}

function expiringProblem(archive: ArchiveState, now: Date): Problem[] {
  const { expiring, expires_first, expiring_requests, expiring_trouble } = archive
  if (expires_first === null) return []
  const at = clockTime(expires_first, now)
  const lost =
    expiring === 1
      ? `1 media will be lost at ${at} unless it is copied: its link ends then.`
      : `${expiring} media will be lost unless they are copied before their links end, the first at ${at}.`
  const last = expiring_trouble === null ? '' : ` Last failure: ${expiring_trouble}.`
  const text = `${lost}${last} Check the archive's store and the hosts of the media; they are copied first.`
  return [{ severity: 'critical', text, count: expiring, ...placeOf('links_expire', expiring_requests) }]
}

/** The page of the only request, else the issue, which lists the requests. */
function placeOf(cause: string, affected: readonly string[]): Pick<Problem, 'cause' | 'affected' | 'href'> {
  const [only, ...others] = affected
  return { cause, affected, href: only === undefined || others.length > 0 ? issueOf(cause) : `/requests/${only}` }
}
