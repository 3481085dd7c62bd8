import type { Problem } from '../domain/problem.ts'
import { clockTime, count } from '../on-call/figures.ts'
import type { ArchiveState } from './archive-state.ts'

/** What has been due for so long is more than a burst. */
const behindMs = 10 * 60_000

/** What is wrong with the archive of media; nothing where there is none. */
export function archiveProblems(archive: ArchiveState | undefined, now: Date): Problem[] {
  if (archive === undefined) return []
  const { waiting, due_since, store_trouble, gone, last_gone, failed, last_failed, failed_trouble } = archive
  const problems: Problem[] = []
  const wait = count(waiting, 'media waits', 'media wait')
  if (store_trouble !== null) {
    const text = `The archive cannot be written (${store_trouble}): ${wait}, and links of the provider may end meanwhile. It is tried again by itself.`
    problems.push({ severity: 'critical', text, cause: 'archive_store', count: waiting, href: '/requests' })
  } else if (due_since !== null && now.getTime() - Date.parse(due_since) >= behindMs) {
    const text = `The archive is behind: ${wait} to be copied, the longest due since ${clockTime(due_since, now)}.`
    problems.push({ severity: 'warning', text, cause: 'archive_behind', count: waiting, href: '/requests' })
  }
  if (gone > 0) {
    const text = `${count(gone, 'media was', 'media were')} gone at the provider before ${gone === 1 ? 'it was' : 'they were'} archived, in the last hour: there is no copy of ${gone === 1 ? 'it' : 'them'}.`
    problems.push({ severity: 'warning', text, cause: 'media_gone', count: gone, href: hrefOf(last_gone) })
  }
  if (failed > 0) {
    const text = `${count(failed, 'media was', 'media were')} not archived in the last hour, last because ${failed_trouble ?? 'of an unknown reason'}.`
    problems.push({ severity: 'warning', text, cause: 'media_not_archived', count: failed, href: hrefOf(last_failed) })
  }
  return problems
}

function hrefOf(requestId: string | null): string {
  return requestId === null ? '/requests' : `/requests/${requestId}`
}
