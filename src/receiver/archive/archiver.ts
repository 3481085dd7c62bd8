import type { Logger } from '../../platform/logger.ts'
import { createParallelWork } from '../../platform/parallel-work.ts'
import { createLeaseKeeper } from '../../platform/postgres/lease-keeper.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { linkLives, type Keys } from '../domain/keys.ts'
import { claimCopies, renewCopies, type Copy } from './copies.ts'
import { copyMedia, putOffForStore, type CopyingDeps, type CopyOutcome } from './copying.ts'
import { createDownloader } from './download.ts'
import type { LinkRules } from './download.ts'
import { followFeed } from './following.ts'
import { StoreError, type ArchiveStore } from './store.ts'
import { removeUnreferred } from './unreferred.ts'

export type ArchiverDeps = LinkRules &
  Pick<CopyingDeps, 'ffmpeg' | 'fetchRatePerMinute' | 'fetchResult'> & {
    db: Database
    keys: () => Keys
    /** Called at the first round, and again after it has failed. */
    openStore: () => Promise<ArchiveStore>
    maxBytes: number
    clock: () => Date
    logger: Logger
    onCopied: (outcome: CopyOutcome, bytes: number) => void
    /** Aborting it cuts copies that are under way, and gives them back. */
    signal: AbortSignal
  }

/** Creates the role that copies media. Replicas share the work by claims. */
export function createArchiver(deps: ArchiverDeps) {
  const { db, clock, logger, signal } = deps
  const downloader = createDownloader(deps)
  // Copies at a time in a process: each takes a connection, a few chunks of memory, and a file in the spool.
  const parallel = createParallelWork(8)
  const keeper = createLeaseKeeper<Copy>({ renew: (held) => renewCopies(db, held), logger })
  let store: ArchiveStore | undefined
  let restsUntil = -Infinity
  // Opening the store sweeps the spool.
  let spoolSweptAt = clock().getTime()

  const begin = (copy: Copy, { into, claimedAtMs }: { into: ArchiveStore; claimedAtMs: number }) => {
    const kept = keeper.keep(copy, claimedAtMs)
    const run = async () => {
      try {
        const { outcome, bytes } = await copyMedia(
          { ...deps, store: into, downloader },
          copy,
          AbortSignal.any([signal, kept.lost]),
        )
        // After a failure of the store, no copies are claimed for this long: fetching would be in vain.
        if (outcome === 'store_failed') restsUntil = performance.now() + 10_000
        deps.onCopied(outcome, bytes)
      } finally {
        await kept.letGo()
      }
    }
    parallel.begin(run(), (error) =>
      logger.error(
        { err: error, request_id: copy.request_id },
        'archiving a media file failed, it is tried again after its lease ends',
      ),
    )
  }

  const follow = async (): Promise<boolean> => {
    // Pages of the feed per round.
    for (let page = 0; page < 10 && !signal.aborted; page += 1)
      if (!(await followFeed(db, linkLives(deps.keys()))).more) return false
    return true
  }
  /** Opens the store. If that fails, one waiting copy records the reason for the on-call engineer. */
  const open = async (): Promise<ArchiveStore> => {
    try {
      return await deps.openStore()
    } catch (error) {
      const [copy] = error instanceof StoreError ? await claimCopies(db, { limit: 1 }) : []
      if (copy && error instanceof StoreError) await putOffForStore(db, copy, error)
      throw error
    }
  }
  /** Deletes files. A failure here must not stop copying. */
  const sweep = async (from: ArchiveStore): Promise<boolean> => {
    try {
      // How often files of killed processes are deleted from the spool.
      if (clock().getTime() - spoolSweptAt >= 600_000) {
        spoolSweptAt = clock().getTime()
        await from.sweepSpool()
      }
      return (await removeUnreferred(db, from)).more
    } catch (error) {
      if (!(error instanceof StoreError)) throw error
      logger.error({ err: error }, 'deleting a file without a reference, or clearing the spool, failed: trying again')
      return false
    }
  }

  return {
    /** Reads the feed, deletes files without a reference, and starts due copies, which continue afterwards. */
    runOnce: async () => {
      const isBehind = await follow()
      store ??= await open()
      const swept = await sweep(store)
      const limit = performance.now() < restsUntil ? 0 : parallel.free()
      const claimedAtMs = performance.now()
      const claimed = limit > 0 ? await claimCopies(db, { limit }) : []
      for (const copy of claimed) begin(copy, { into: store, claimedAtMs })
      const isFull = limit > 0 && claimed.length === limit
      if (isFull) await parallel.untilOneEnds()
      return { more: isBehind || swept || isFull }
    },
    idle: async () => {
      await parallel.idle()
      await downloader.close()
    },
  }
}
