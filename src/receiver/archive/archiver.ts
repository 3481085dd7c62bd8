import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from '../../platform/logger.ts'
import { createLeaseKeeper } from '../../platform/postgres/lease-keeper.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { claimCopies, renewCopies, type Copy } from './copies.ts'
import { copyMedia, putOffForStore, type CopyingDeps, type CopyOutcome } from './copying.ts'
import { createDownloader } from './download.ts'
import { followFeed } from './following.ts'
import type { SourceRules } from './sources.ts'
import { StoreError, type ArchiveStore } from './store.ts'
import { removeUnreferred } from './unreferred.ts'

export type Archiver = {
  /** One look: what is new in the feed, what is to be deleted, what is due. Copies go on after it. */
  runOnce: () => Promise<{ more: boolean }>
  /** When no copy is under way any more. */
  settled: () => Promise<void>
}

export type ArchiverDeps = SourceRules &
  Pick<CopyingDeps, 'ffmpeg'> & {
    db: Database
    /** Opened at the first round, and again after it could not be. */
    openStore: () => Promise<ArchiveStore>
    maxBytes: number
    clock: () => Date
    logger: Logger
    /** A copy has ended, somehow. */
    onCopied: (outcome: CopyOutcome, bytes: number) => void
    /** Copies that are under way are cut, and given back. */
    signal: AbortSignal
  }

/** Copies of a process at one time: each takes a connection, a few chunks of memory, and its file on the spool. */
const maxSideBySide = 8
/** After the store has failed, nothing is claimed for so long: what cannot be kept is not fetched either. */
const storeRestMs = 10_000
/** Of the feed, in a round. */
const maxPages = 10
const waitForPlaceMs = 1000
/** Whoever was killed left there what he had begun, which may never start again. */
const sweepSpoolMs = 600_000

/** The role that copies media: any number of replicas share the work by their claims. */
export function createArchiver(deps: ArchiverDeps): Archiver {
  const { db, clock, logger, signal } = deps
  const downloader = createDownloader(deps)
  const underWay = new Set<Promise<void>>()
  const keeper = createLeaseKeeper<Copy>({ renew: (held) => renewCopies(db, held), logger })
  let store: ArchiveStore | undefined
  let restsUntil = -Infinity
  // Opening it has swept.
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
        if (outcome === 'store_failed') restsUntil = performance.now() + storeRestMs
        deps.onCopied(outcome, bytes)
      } catch (error) {
        logger.error(
          { err: error, request_id: copy.requestId },
          'archiving a media failed, it is tried again when its lease ends',
        )
      } finally {
        await kept.letGo()
      }
    }
    const ended: Promise<void> = run().finally(() => underWay.delete(ended))
    underWay.add(ended)
  }

  /** Several pages of the feed in a round; true where there is more even so. */
  const follow = async (): Promise<boolean> => {
    for (let page = 0; page < maxPages && !signal.aborted; page += 1) if (!(await followFeed(db)).more) return false
    return true
  }
  /** Where it cannot be opened, one that waits says so for the on-call. */
  const open = async (): Promise<ArchiveStore> => {
    try {
      return await deps.openStore()
    } catch (error) {
      const [copy] = error instanceof StoreError ? await claimCopies(db, { limit: 1 }) : []
      if (copy && error instanceof StoreError) await putOffForStore(deps, copy, error)
      throw error
    }
  }
  /** What cannot be deleted keeps nothing from being copied. */
  const sweep = async (from: ArchiveStore): Promise<boolean> => {
    try {
      if (clock().getTime() - spoolSweptAt >= sweepSpoolMs) {
        spoolSweptAt = clock().getTime()
        await from.sweepSpool()
      }
      return (await removeUnreferred(db, from)).more
    } catch (error) {
      if (!(error instanceof StoreError)) throw error
      logger.error(
        { err: error },
        'a file that nothing refers to, or that was never ended, could not be deleted: it is tried again',
      )
      return false
    }
  }

  return {
    runOnce: async () => {
      const isBehind = await follow()
      store ??= await open()
      const swept = await sweep(store)
      const limit = performance.now() < restsUntil ? 0 : maxSideBySide - underWay.size
      const claimedAtMs = performance.now()
      const claimed = limit > 0 ? await claimCopies(db, { limit }) : []
      for (const copy of claimed) begin(copy, { into: store, claimedAtMs })
      const isFull = limit > 0 && claimed.length === limit
      if (isFull) await oneOf([...underWay])
      return { more: isBehind || swept || isFull }
    },
    settled: async () => {
      await Promise.all(underWay)
      await downloader.close()
    },
  }
}

/** Until one has ended, or for a second. */
async function oneOf(all: readonly Promise<void>[]): Promise<void> {
  const waited = new AbortController()
  await Promise.race([...all, delay(waitForPlaceMs, undefined, { signal: waited.signal, ref: false }).catch(() => {})])
  waited.abort()
}
