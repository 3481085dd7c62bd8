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
