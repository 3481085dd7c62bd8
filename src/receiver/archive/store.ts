import fs from 'node:fs/promises'
import path from 'node:path'
import type { Readable } from 'node:stream'
import type { FileName } from '../domain/archived-file.ts'

export type ByteRange = { start: number; end: number }

export type SpooledFile = FileName & { path: string; bytes: number }

/** A store of files by their content. Its failures throw StoreError and never count as a try of a media. */
export type ArchiveStore = {
  /** Where files are written before they are stored. */
  spoolDir: string
  /** Deletes files that dead processes have left in the spool. */
  sweepSpool: () => Promise<void>
  urlOf: (file: FileName) => string
  /** Stores the file durably. A stored file stays as it is. The spooled file may be gone afterwards. */
  keep: (file: SpooledFile, signal: AbortSignal) => Promise<void>
  keepThumbnail: (sha256: string, bytes: Buffer, signal: AbortSignal) => Promise<void>
  /** Reads a file or a thumbnail by its name; undefined for a missing one. */
  read: (
    name: string,
    signal: AbortSignal,
    range?: ByteRange,
  ) => Promise<{ bytes: number; stream: Readable } | undefined>
  /** Deletes a file and its thumbnail. A missing file is no error. */
  remove: (file: FileName) => Promise<void>
}

export function nameOfThumbnail(sha256: string): string {
  return `${sha256.slice(0, 2)}/${sha256}.thumbnail.webp`
}

/** The archive, or the disk of the spool, failed. */
export class StoreError extends Error {
  override name = 'StoreError'
  code = 'archive_store' as const
}

/** Runs a step of the store. Its errors name the step. */
export async function inStore<T>(what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof StoreError) throw error
    throw new StoreError(`${what}: ${error instanceof Error ? inWords(error.message) : String(error)}`, {
      cause: error,
    })
  }
}

/** `ENOSPC: no space left on device, write '/x'` as `no space left on device (ENOSPC)`. Other messages stay. */
function inWords(message: string): string {
  return message.replace(/^(E[A-Z0-9]+): (.+?), \w+(?: '.*')?$/s, '$2 ($1)')
}

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
