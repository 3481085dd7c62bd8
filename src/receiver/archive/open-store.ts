import type { ReceiverSettings } from '../settings.ts'
import { openFileStore } from './file-store.ts'
import type { ArchiveStore } from './store.ts'

/** Opens the store of MEDIA_ARCHIVE. Throws StoreError if it cannot be used. */
export async function openStore(place: NonNullable<ReceiverSettings['mediaArchive']>): Promise<ArchiveStore> {
  if (place.kind === 'file') return openFileStore(place.root)
  // Loaded on demand, since the AWS SDK takes long to load.
  const { openS3Store } = await import('./s3-store.ts')
  return openS3Store(place)
}
