import type { ReceiverSettings } from '../settings.ts'
import { openFileStore } from './file-store.ts'
import type { ArchiveStore } from './store.ts'

/** The archive that MEDIA_ARCHIVE names. Throws StoreError where it cannot be used. */
export async function openStore(place: NonNullable<ReceiverSettings['mediaArchive']>): Promise<ArchiveStore> {
  if (place.kind === 'file') return openFileStore(place.root)
  // Loaded where it is needed: it takes longer than all else that a start loads.
  const { openS3Store } = await import('./s3-store.ts')
  return openS3Store(place)
}
