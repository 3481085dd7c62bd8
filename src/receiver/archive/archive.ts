import type { SliceWithPages } from '../console/slice-pages.ts'
import { placeOf, type Problem } from '../domain/problem.ts'
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

export function archiveProblems(archive: ArchiveState, now: Date): Problem[] {
  const { gone, gone_requests, gone_trouble, failed, failed_requests, failed_trouble } = archive
  const problems = [...waitingProblem(archive, now), ...expiringProblem(archive, now)]
  if (gone > 0) {
    const text =
      `The provider no longer serves ${count(gone, 'media', 'media')} that the archive tried to copy in the last ` +
      `hour${gone_trouble === null ? '' : `: ${gone_trouble}`}. No copy exists. ` +
      'Submit the requests again if their media are still needed: that costs credits and makes other media.'
    problems.push({ severity: 'warning', text, cause: 'media_gone', count: gone, ...placeOf(gone_requests) })
  }
  if (failed > 0) {
    const text =
      `${count(failed, 'media was', 'media were')} not archived in the last hour. The last reason: ` +
      `${failed_trouble ?? 'unknown'}.`
    problems.push({
      severity: 'warning',
      text,
      cause: 'media_not_archived',
      count: failed,
      ...placeOf(failed_requests),
    })
  }
  return problems
}

function waitingProblem(archive: ArchiveState, now: Date): Problem[] {
  const { waiting, waiting_requests, due_since, links_end, store_trouble } = archive
  const wait = count(waiting, 'media waits', 'media wait')
  const about = { count: waiting, ...placeOf(waiting_requests) }
  if (store_trouble !== null) {
    const howTo = store_trouble.includes('ENOSPC') ? 'Make room there' : 'Check the store and MEDIA_ARCHIVE'
    const text = [
      `The archive cannot be written, and ${wait} for a copy. The error: ${store_trouble}.`,
      links_end === null
        ? 'It is unknown when their links end.'
        : `The first of their links ends at ${clockTime(links_end, now)}, and its media is lost then.`,
      `Results still land. ${howTo}; copying then continues.`,
    ].join(' ')
    return [{ severity: 'critical', text, cause: 'archive_store', ...about }]
  }
  // The archive counts as behind if a copy has been due for ten minutes.
  if (due_since === null || now.getTime() - Date.parse(due_since) < 10 * 60_000) return []
  const text = `The archive is behind: ${wait} to be copied, the oldest due since ${clockTime(due_since, now)}.`
  return [{ severity: 'warning', text, cause: 'archive_behind', ...about }]
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
  return [{ severity: 'critical', text, cause: 'links_expire', count: expiring, ...placeOf(expiring_requests) }]
}
