import { randomUUID } from 'node:crypto'
import { createReadStream } from 'node:fs'
import fs from 'node:fs/promises'
import path from 'node:path'
import { linkInArchive, nameOfFile } from '../domain/archived-file.ts'
import type { ReceiverSettings } from '../settings.ts'
import { inStore, nameOfThumbnail, sweepSpool, type ArchiveStore } from './store.ts'

/** Opens an archive in a folder that all replicas share. A rename makes each file appear whole or not at all. */
export async function openFileStore(root: string): Promise<ArchiveStore> {
  const spoolDir = path.join(root, 'incoming')
  await inStore(`making ${spoolDir}`, () => fs.mkdir(spoolDir, { recursive: true }))
  await sweepSpool(spoolDir)
  const at = (name: string) => path.join(root, name)

  const place = async (from: string, name: string) => {
    const to = at(name)
    await fs.mkdir(path.dirname(to), { recursive: true })
    await synced(from)
    await fs.rename(from, to)
    await synced(path.dirname(to))
  }
  return {
    spoolDir,
    sweepSpool: () => sweepSpool(spoolDir),
    urlOf: (file) => linkInArchive({ kind: 'file', root }, file),
    keep: ({ path: from, bytes, ...file }) =>
      inStore(`keeping a file in ${root}`, async () => {
        if ((await sizeOf(at(nameOfFile(file)))) === bytes) return fs.rm(from, { force: true })
        return place(from, nameOfFile(file))
      }),
    keepThumbnail: (sha256, bytes) =>
      inStore(`keeping a thumbnail in ${root}`, async () => {
        const from = path.join(spoolDir, `${randomUUID()}.thumbnail`)
        await fs.writeFile(from, bytes)
        await place(from, nameOfThumbnail(sha256))
      }),
    read: (name, _signal, range) =>
      inStore(`reading a file in ${root}`, async () => {
        const bytes = await sizeOf(at(name))
        return bytes === undefined ? undefined : { bytes, stream: createReadStream(at(name), range) }
      }),
    remove: (file) =>
      inStore(`deleting a file in ${root}`, async () => {
        // A missing folder may be unmounted. Then this throws, so that the file does not count as deleted.
        await fs.access(root)
        await fs.rm(at(nameOfFile(file)), { force: true })
        await fs.rm(at(nameOfThumbnail(file.sha256)), { force: true })
      }),
  }
}

async function sizeOf(file: string): Promise<number | undefined> {
  try {
    return (await fs.stat(file)).size
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    throw error
  }
}

async function synced(name: string): Promise<void> {
  const handle = await fs.open(name, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Opens the store of MEDIA_ARCHIVE. Throws StoreError if it cannot be used. */
export async function openStore(place: NonNullable<ReceiverSettings['mediaArchive']>): Promise<ArchiveStore> {
  if (place.kind === 'file') return openFileStore(place.root)
  // Loaded on demand, since the AWS SDK takes long to load.
  const { openS3Store } = await import('./s3-store.ts')
  return openS3Store(place)
}
