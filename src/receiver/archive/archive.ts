import type { SliceWithPages } from '../console/slice-pages.ts'
import { keptFrom } from '../upkeep/retention.ts'
import { archiveProblems } from './archive-problems.ts'
import { readArchiveState } from './archive-state.ts'
import { expireMedia } from './expiry.ts'

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
