import type { Logger } from '../../platform/logger.ts'
import { createParallelWork } from '../../platform/parallel-work.ts'
import { statementRows } from '../../platform/postgres/at-most.ts'
import { sql, type SQL } from '../../platform/postgres/drizzle.ts'
import { one, retryConflicts } from '../../platform/postgres/errors.ts'
import { createLeaseKeeper } from '../../platform/postgres/lease-keeper.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { later, postgresTime } from '../../platform/postgres/time.ts'
import { linkLives, type Keys, type LinkLives } from '../domain/keys.ts'
import { claimCopies, renewCopies, type Copy } from './copies.ts'
import { copyMedia, putOffForStore, type CopyingDeps, type CopyOutcome } from './copying.ts'
import { createDownloader, type LinkRules } from './download.ts'
import { removeUnreferred } from './removal.ts'
import { StoreError, type ArchiveStore } from './store.ts'

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
        'archiving a media file failed, it is tried again after its lease expires',
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
      if (error instanceof StoreError)
        for (const copy of await claimCopies(db, { limit: 1 })) await putOffForStore(db, copy, error)
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

const now = postgresTime()

/**
 * Reads on in the feed, and queues copies for media of complete results without a copy of their present link. So
 * landing writes nothing for the archive, and results that landed while it was off are found too. One replica at a time
 * does this. A media whose link has changed loses its copy and gets another.
 */
export async function followFeed(db: Database, lives: LinkLives = {}) {
  const statement = sql`
    with begin as (select position from mediadock.archive_progress limit 1 for update skip locked),
    page as (
      select e.position, e.request_id from mediadock.feed_entries e
      where e.position > (select position from begin) order by e.position limit ${statementRows}
    ),
    wanted as (
      select m.*, r.expires_at from (select distinct request_id from page) p
      join lateral (
        select ${endOfLinks(lives)} as expires_at from mediadock.requests r
        where r.request_id = p.request_id and r.status = 'COMPLETED' and r.media_complete limit 1
      ) r on true
      join lateral (
        select m.request_id, m.kind, m.position, m.url from mediadock.media m
          where m.request_id = p.request_id offset 0
      ) m on true
    ),
    -- One look-up per row: with outdated statistics the planner would read the whole table for a page of changes.
    replaced as (
      select c.sha256 from wanted join lateral (
        select c.sha256, c.url from mediadock.media_copies c
        where (c.request_id, c.kind, c.position) = (wanted.request_id, wanted.kind, wanted.position) limit 1
      ) c on c.url <> wanted.url and c.sha256 is not null
    ),
    queued as (
      insert into mediadock.media_copies as c (request_id, kind, position, url, state, due_at, expires_at)
      select request_id, kind, position, url, 'waiting', ${now}, expires_at from wanted
      order by request_id, kind, position
      on conflict (request_id, kind, position) do update set url = excluded.url,
        state = 'waiting', due_at = excluded.due_at, expires_at = excluded.expires_at,
        claims = c.claims + 1, unended = 0, tries = 0, fault = null, trouble = null, sha256 = null, ended_at = null
      where c.url <> excluded.url and c.state <> 'removed'
      returning c.request_id, c.kind, c.position, c.claims
    ),
    taken_back as (
      update mediadock.media m set archived_url = null, bytes = null, content_type = null,
        sha256 = null, archived_at = null, archive_error = null
      where m.ctid = any(array(
        select found.ctid from queued, lateral (
          select m.ctid from mediadock.media m
          where (m.request_id, m.kind, m.position) = (queued.request_id, queued.kind, queued.position) limit 1
        ) found where queued.claims > 0))
    ),
    doubted as (
      update mediadock.archived_files set look_at = ${now}
      where sha256 = any(array(select sha256 from replaced))
    ),
    moved as (
      update mediadock.archive_progress set position = (select max(position) from page)
        where exists (select from page)
    )
    select (select count(*)::int from page) as changes, (select count(*)::int from queued) as queued`
  const rows = await retryConflicts(() => db.execute<{ changes: number; queued: number }>(statement))
  const followed = one(rows, 'queueing media for the archive')
  return { ...followed, more: followed.changes === statementRows }
}

/** SQL: when links end, counted from the end of the job; null without a promise. */
function endOfLinks(lives: LinkLives): SQL {
  const seconds = sql`(${JSON.stringify(lives)}::jsonb ->> coalesce(r.source_name, ''))::float8`
  return later(sql`least(r.completed_at, r.landed_at)`, seconds)
}
