import { randomUUID } from 'node:crypto'
import { createReadStream } from 'node:fs'
import fs from 'node:fs/promises'
import path from 'node:path'
import { linkInArchive, nameOfFile } from '../domain/archived-file.ts'
import { inStore, nameOfThumbnail, type ArchiveStore } from './store.ts'

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
    read: (file, _signal, range) =>
      inStore(`reading a file in ${root}`, async () => {
        const name = at('thumbnailOf' in file ? nameOfThumbnail(file.thumbnailOf) : nameOfFile(file))
        const bytes = await sizeOf(name)
        return bytes === undefined ? undefined : { bytes, stream: createReadStream(name, range) }
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

/** Deletes files that dead processes have left in the spool. */
export async function sweepSpool(spoolDir: string): Promise<void> {
  await inStore(`clearing ${spoolDir}`, async () => {
    for (const name of await fs.readdir(spoolDir)) {
      const file = path.join(spoolDir, name)
      const age = Date.now() - ((await fs.stat(file).catch(() => undefined))?.mtimeMs ?? Date.now())
      // Older files in the spool belong to a process that has died: no copy takes this long.
      if (age > 3_600_000) await fs.rm(file, { force: true })
    }
  })
}
