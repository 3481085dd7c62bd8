import { findFfmpeg, type Ffmpeg } from '../../platform/ffmpeg.ts'
import type { Logger } from '../../platform/logger.ts'
import { startLoop, type Loop } from '../../platform/loop.ts'
import type { Pressure } from '../intake/pressure.ts'
import type { WorkerDeps } from '../landing/worker.ts'
import type { ReceiverSettings } from '../settings.ts'
import { createArchiver, type ArchiverDeps } from './archiver.ts'
import { openStore } from './open-store.ts'

export type ArchivingDeps = Pick<ArchiverDeps, 'onCopied' | 'signal'> & {
  settings: ReceiverSettings
  landing: WorkerDeps
  pressure: Pressure
  after: Promise<void>
}

export type Archiving = { loop: Loop; settled: () => Promise<void> }

const pollMs = 1000

/** Starts the role that copies media; without MEDIA_ARCHIVE nothing of it runs. */
export function startArchiving({ settings, landing, pressure, onCopied, after, signal }: ArchivingDeps): Archiving {
  const { mediaArchive, mediaArchiveMaxBytes: maxBytes, production } = settings
  const { db, clock, logger, mediaHosts } = landing
  if (mediaArchive === undefined)
    return { loop: { wake: () => {}, failing: () => undefined, done: Promise.resolve() }, settled: async () => {} }
  const archiver = createArchiver({
    db,
    clock,
    logger,
    mediaHosts,
    production,
    maxBytes,
    ffmpeg: ffmpegForPosters({ given: settings.ffmpegPath, logger, signal }),
    openStore: () => openStore(mediaArchive),
    onCopied,
    signal,
  })
  // Acknowledging comes first.
  const runOnce = () => pressure.paced(archiver.runOnce, signal)
  const loop = startLoop({ name: 'archive', runOnce, idleMs: pollMs, after, logger, signal })
  return { loop, settled: archiver.settled }
}

type FfmpegSearch = { given: string | undefined; logger: Logger; signal: AbortSignal }

async function ffmpegForPosters({ given, logger, signal }: FfmpegSearch): Promise<Ffmpeg | undefined> {
  try {
    const ffmpeg = await findFfmpeg(given, signal)
    if (ffmpeg !== undefined) logger.info({ ...ffmpeg }, 'posters of archived videos are made by this ffmpeg')
    else if (given !== undefined)
      logger.warn(
        'FFMPEG_PATH names no ffmpeg of version 5 or newer that runs here: archived videos get no poster. Install one, or correct it.',
      )
    else
      logger.info(
        'no ffmpeg of version 5 or newer is installed: archived videos get no poster. Install one, or set FFMPEG_PATH.',
      )
    return ffmpeg
  } catch (error) {
    if (!signal.aborted) logger.error({ err: error }, 'ffmpeg could not be looked for: archived videos get no poster')
    return undefined
  }
}
