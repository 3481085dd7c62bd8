import type { Readable } from 'node:stream'

export type FileName = { sha256: string; contentType: string }

export type ByteRange = { start: number; end: number }

/** A file on this machine that is to be kept. */
export type SpooledFile = FileName & { path: string; bytes: number }

/**
 * Where files are kept, by their content. What fails in here is ours: it throws a StoreError, and no
 * media is given up for it.
 */
export type ArchiveStore = {
  /** Where files are put together before they are kept. */
  spoolDir: string
  /** Deletes what processes that died have left in a spool. */
  sweepSpool: () => Promise<void>
  urlOf: (file: FileName) => string
  /** Keeps the file durably; one that is there already stays as it is. The spooled one may be gone after it. */
  keep: (file: SpooledFile, signal: AbortSignal) => Promise<void>
  keepThumbnail: (sha256: string, bytes: Buffer, signal: AbortSignal) => Promise<void>
  /** Undefined where there is no such file. */
  read: (
    file: FileName | { thumbnailOf: string },
    signal: AbortSignal,
    range?: ByteRange,
  ) => Promise<{ bytes: number; stream: Readable } | undefined>
  /** With its thumbnail; what is not there is no error. */
  remove: (file: FileName) => Promise<void>
}

/** The archive, or the disk on which files are put together, did not do what it is for. */
export class StoreError extends Error {
  override name = 'StoreError'
  code = 'archive_store' as const
}

/** Runs a step of the store; what it throws says what was done to what. */
export async function inStore<T>(what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof StoreError) throw error
    throw new StoreError(`${what}: ${error instanceof Error ? error.message : String(error)}`, { cause: error })
  }
}
