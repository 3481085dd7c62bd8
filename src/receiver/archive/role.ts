import { Counter } from 'prom-client'
import { findFfmpeg, type Ffmpeg } from '../../platform/ffmpeg.ts'
import type { Logger } from '../../platform/logger.ts'
import { startLoop } from '../../platform/loop.ts'
import { linkLives, type Keys } from '../domain/keys.ts'
import { readForScrape, registerGauge } from '../metrics.ts'
import { pollMs, type RunningSlice, type SliceDeps } from '../slice.ts'
import { createArchiver } from './archiver.ts'
import { countWaitingCopies } from './copies.ts'
import { openStore } from './file-store.ts'

/** Starts the role that copies media. Without MEDIA_ARCHIVE no role starts. */
export function startArchiving(deps: SliceDeps): RunningSlice {
  const { settings, keys, logger, pressure, wakeFeed, after, signal } = deps
  const { mediaArchive, mediaArchiveMaxBytes: maxBytes } = settings
  const metrics = createArchiveMetrics(deps)
  if (mediaArchive === undefined) {
    warnOfLinks(keys(), logger)
    return { idle: async () => {} }
  }
  const archiver = createArchiver({
    ...settings,
    ...deps,
    maxBytes,
    ffmpeg: ffmpegForPosters(deps),
    openStore: () => openStore(mediaArchive),
    onCopied: (outcome, bytes) => {
      metrics.copies.inc({ outcome })
      metrics.bytes.inc(bytes)
      if (outcome === 'archived') wakeFeed()
    },
  })
  // Acknowledging has priority over copying.
  const runOnce = () => pressure.paced(archiver.runOnce, signal)
  const loop = startLoop({ name: 'archive', runOnce, idleMs: pollMs, after, logger, signal })
  return { loop, idle: archiver.idle }
}

/** Warns at the start if links end and nothing copies their media. */
function warnOfLinks(keys: Keys, logger: Logger): void {
  const lives = linkLives(keys)
  if (Object.keys(lives).length === 0) return
  logger.warn(
    { link_life_seconds: lives },
    'links of these sources end and MEDIA_ARCHIVE is not set: their media are lost unless a service copies them',
  )
}

/** Registers the archive's metrics (docs/observe.md). The backlog is read at each scrape. */
export function createArchiveMetrics({ registry, db, logger }: Pick<SliceDeps, 'registry' | 'db' | 'logger'>) {
  const registers = [registry]
  const name = 'mediadock_archive_waiting'
  registerGauge(registry, {
    name,
    help: 'Media that wait for their copy in the archive, counted up to 10,000',
    read: () => readForScrape(logger, name, async () => [[{}, await countWaitingCopies(db)]]),
  })
  const copies = new Counter({
    name: 'mediadock_archive_copies_total',
    help: 'Attempts to copy a media into the archive, by outcome',
    labelNames: ['outcome'],
    registers,
  })
  const bytes = new Counter({
    name: 'mediadock_archived_bytes_total',
    help: 'Bytes of media copied into the archive',
    registers,
  })
  // Starts at 0: a counter that first appears with its first event shows no increase.
  for (const outcome of ['archived', 'given_up', 'store_failed']) copies.inc({ outcome }, 0)
  return { copies, bytes }
}

async function ffmpegForPosters({ settings, logger, signal }: SliceDeps): Promise<Ffmpeg | undefined> {
  const given = settings.ffmpegPath
  try {
    const ffmpeg = await findFfmpeg(given, signal)
    if (ffmpeg !== undefined) logger.info({ ...ffmpeg }, 'this ffmpeg makes the posters of archived videos')
    else if (given !== undefined)
      logger.warn(
        'FFMPEG_PATH is not an ffmpeg of version 5 or newer that runs here: archived videos get no poster. ' +
          'Correct or unset FFMPEG_PATH, and restart.',
      )
    else
      logger.info(
        'no ffmpeg of version 5 or newer was found: archived videos get no poster. ' +
          'Install one or set FFMPEG_PATH, and restart.',
      )
    return ffmpeg
  } catch (error) {
    if (!signal.aborted) logger.error({ err: error }, 'searching for ffmpeg failed: archived videos get no poster')
    return undefined
  }
}
