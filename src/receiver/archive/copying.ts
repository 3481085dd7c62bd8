import fs from 'node:fs/promises'
import type { Ffmpeg } from '../../platform/ffmpeg.ts'
import type { Logger } from '../../platform/logger.ts'
import type { Credential } from '../../platform/outward/getter.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { postgresTime } from '../../platform/postgres/time.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import { keyOfRequest, sourceOf, type GenerationKey } from '../domain/keys.ts'
import { takeCall } from '../fetching/call-budget.ts'
import { noteAnswer, type KeyHealth } from '../fetching/key-health.ts'
import {
  giveBack,
  giveUpCopy,
  putOffCopy,
  type Copy,
  type CopyFailure,
  type CopyFault,
  doubtFile,
  endCopy,
  wantFile,
} from './copies.ts'
import type { Downloader, Download } from './download.ts'
import { findInline, type InlineDeps, type Unfit, type WaitingCopy } from './inline.ts'
import { StoreError, type ArchiveStore, type SpooledFile } from './store.ts'
import { thumbnailOf, type Thumbnail, type ThumbnailOptions } from './thumbnails.ts'

export type CopyOutcome = 'archived' | 'put_off' | 'given_up' | 'store_failed' | 'no_longer_ours' | 'cut'

export type CopyingDeps = InlineDeps & {
  fetchRatePerMinute: number
  store: ArchiveStore
  downloader: Downloader
  /** Makes posters of videos. Searched once, when the program starts. */
  ffmpeg?: Promise<Ffmpeg | undefined>
  logger: Logger
}

/** With jitter, 12 tries take 1.7 to 3.4 hours. A media that is gone at the provider is tried for about a minute. */
const pauses = { baseMs: 10_000, capMs: 3_600_000 }
const maxTries: Record<Exclude<CopyFault, 'store'>, number> = { unreachable: 12, gone: 4, refused: 1 }
/** The pause when a copy waits for the store or a key. It counts as no try: the media is not at fault. */
const waitSeconds = 30

/** Copies one claimed media and ends the claim. Aborting `cut` stops at once and gives the copy back. */
export async function copyMedia(
  deps: CopyingDeps,
  copy: Copy,
  cut: AbortSignal,
): Promise<{ outcome: CopyOutcome; bytes: number }> {
  // The limit of one copy, from the first byte to the store.
  const signal = AbortSignal.any([cut, AbortSignal.timeout(600_000)])
  const came = await bring(deps, copy, signal).catch((error: unknown): Brought => {
    if (error instanceof StoreError) return { kind: 'store', error }
    if (signal.aborted) return { kind: 'unreachable', detail: 'the copy took too long' }
    throw error
  })
  if (came.kind === 'archived') return { outcome: 'archived', bytes: came.bytes }
  if (came.kind === 'lost') return { outcome: 'no_longer_ours', bytes: 0 }
  if (cut.aborted) {
    await giveBack(deps.db, copy)
    return { outcome: 'cut', bytes: 0 }
  }
  return { outcome: await fail(deps, copy, came), bytes: 0 }
}

type Brought =
  | { kind: 'archived'; bytes: number }
  | { kind: 'lost' }
  | Unfit
  | WaitingCopy
  | { kind: 'store'; error: StoreError }

async function bring(deps: CopyingDeps, copy: Copy, signal: AbortSignal): Promise<Brought> {
  const { store, downloader } = deps
  const found = await findInline(deps, copy, signal)
  if (found !== undefined && found.kind !== 'found') return found
  const key = await takeLinkKey(deps, copy)
  if (key !== undefined && 'detail' in key) return key
  const link = { url: found?.uri ?? copy.url, kind: copy.kind, credential: key?.credential }
  const download = await downloader.download({ ...link, spoolDir: store.spoolDir, signal })
  try {
    if (key) await noteLinkKey(deps, key, download)
    if (download.kind === 'spooled') return await keep(deps, copy, download.file, signal)
    if (download.kind !== 'key_refused') return download
    const { status, detail } = download
    if (status === 429) return { kind: 'waits', detail }
    return key && isRefusalOfKey(status, key.health) ? withoutKey(copy, detail) : { kind: 'unreachable', detail }
  } finally {
    if (download.kind === 'spooled') await fs.rm(download.file.path, { force: true }).catch(() => {})
  }
}

/** A link that still lasts by its source's promise waits for another key. Others use a try. */
function withoutKey({ is_promised }: Copy, detail: string): WaitingCopy | Unfit {
  return { kind: is_promised ? 'waits' : 'unreachable', detail }
}

async function keep(deps: CopyingDeps, copy: Copy, file: SpooledFile, signal: AbortSignal): Promise<Brought> {
  const { db, store, logger, ffmpeg } = deps
  const { sha256 } = file
  const thumbnail = copy.kind === 'audio' ? undefined : await picture(copy, file, { ffmpeg: await ffmpeg, signal })
  signal.throwIfAborted()
  if (thumbnail?.kind === 'damaged') return { kind: 'unreachable', detail: `the image is damaged: ${thumbnail.why}` }
  if (thumbnail?.kind === 'none')
    logger.info({ request_id: copy.request_id, sha256, why: thumbnail.why }, 'archived without a thumbnail')
  const incarnation = await wantFile(db, file)
  // The copy stores the file again after the deletion.
  if (incarnation === undefined) return { kind: 'waits', detail: 'the same file is being deleted' }
  let isEnded = false
  try {
    const made = thumbnail?.kind === 'made' ? thumbnail.bytes : undefined
    if (made) await store.keepThumbnail(sha256, made, signal)
    await store.keep(file, signal)
    const stored = { ...file, incarnation, archivedUrl: store.urlOf(file), hasThumbnail: made !== undefined }
    isEnded = await endCopy(db, copy, stored)
    return isEnded ? { kind: 'archived', bytes: file.bytes } : { kind: 'lost' }
  } finally {
    // A file stored for a media that was removed meanwhile is checked again, so that it does not stay in the store.
    if (!isEnded)
      await doubtFile(db, file).catch((error: unknown) =>
        logger.error({ err: error, sha256 }, 'a file may remain in the archive without a reference'),
      )
  }
}

async function picture(copy: Copy, file: SpooledFile, options: ThumbnailOptions): Promise<Thumbnail | undefined> {
  // Decoding can kill a process. After this many claims without an end, the file is archived without decoding it.
  if (copy.unended <= 3) return thumbnailOf(file, options)
  return { kind: 'none', why: `${copy.unended - 1} consecutive processes ended while copying it` }
}

type Failed = Exclude<Brought, { kind: 'archived' | 'lost' }>

async function fail({ db, logger }: CopyingDeps, copy: Copy, came: Failed): Promise<CopyOutcome> {
  const about = { request_id: copy.request_id, kind: copy.kind, position: copy.position }
  if (came.kind === 'store') {
    logger.error({ err: came.error, ...about }, 'the archive could not be written, trying again')
    await putOffForStore(db, copy, came.error)
    return 'store_failed'
  }
  if (came.kind === 'waits') {
    await wait(db, copy, { fault: 'unreachable', trouble: came.detail }, came.pauseSeconds)
    return 'put_off'
  }
  const { kind: fault, detail: trouble } = came
  const tries = copy.tries + 1
  if (tries < maxTries[fault]) {
    const pauseSeconds = jitteredPauseMs(tries, pauses, Math.random) / 1000
    logger.info(
      { ...about, fault, trouble, tries, retry_in_seconds: pauseSeconds },
      'a media file could not be copied, trying again',
    )
    await putOffCopy(db, copy, { fault, trouble, pauseSeconds, counts: true })
    return 'put_off'
  }
  logger.warn(
    { ...about, fault, trouble, tries },
    'a media file could not be copied and will not be archived: see fault and trouble',
  )
  await giveUpCopy(db, copy, { fault, trouble })
  return 'given_up'
}

export function putOffForStore(db: Database, copy: Copy, { message }: StoreError): Promise<void> {
  return wait(db, copy, { fault: 'store', trouble: message.slice(0, 300) })
}

/** Schedules another try after the pause, up to twice as long. It counts as none: the media itself is not at fault. */
function wait(db: Database, copy: Copy, failure: CopyFailure, seconds = waitSeconds): Promise<void> {
  return putOffCopy(db, copy, { ...failure, pauseSeconds: seconds * (1 + Math.random()), counts: false })
}

type LinkKey = { key: GenerationKey; credential: Credential; health: KeyHealth }

/**
 * Takes a call of a key for a link to the origin of the source's API. No other origin is sent a key: undefined. The
 * download is one of the key's calls, so the copy may have to wait: see takeCall().
 */
async function takeLinkKey(
  { db, keys, fetchRatePerMinute }: CopyingDeps,
  copy: Copy,
): Promise<LinkKey | WaitingCopy | Unfit | undefined> {
  const source = sourceOf(keys(), copy.source_name)
  const { linkHeaders } = source?.kind ?? {}
  if (source?.apiUrl === undefined || linkHeaders === undefined) return undefined
  const { origin } = new URL(source.apiUrl)
  if (!URL.canParse(copy.url) || new URL(copy.url).origin !== origin) return undefined
  const key = keyOfRequest(keys(), source, copy.key_name)
  if (key?.apiKey === undefined) return withoutKey(copy, `the source ${source.name} has no usable key`)
  const wanted = { keyName: key.name, limitPerMinute: fetchRatePerMinute, purpose: 'completing' } as const
  const grant = await takeCall(db, { ...wanted, now: postgresTime() })
  if (grant.ok) return { key, credential: { origin, headers: linkHeaders(key.apiKey) }, health: grant.health }
  const detail = `the key ${key.name} has no call left (${grant.reason})`
  return { kind: 'waits', detail, pauseSeconds: Math.max(1, grant.retryAfterSeconds) }
}

/** Records what a download shows of its key: see isRefusalOfKey(). */
async function noteLinkKey({ db, keys }: CopyingDeps, { key, health }: LinkKey, download: Download): Promise<void> {
  const refused = download.kind === 'key_refused' ? download : undefined
  const refusesKey = refused !== undefined && isRefusalOfKey(refused.status, health)
  const effect = download.kind === 'spooled' ? 'accepted' : refusesKey ? 'refused' : 'none'
  const outcome =
    refused?.status === 429
      ? { kind: 'rate_limited', retryAfterSeconds: refused.retryAfterSeconds }
      : { kind: download.kind }
  await noteAnswer({ db, keys, time: postgresTime }, { key, health, outcome, effect })
}

/** True if the answer refuses the key itself, rather than a file. */
function isRefusalOfKey(status: number, { refusals }: KeyHealth): boolean {
  return status === 401 || (status === 403 && refusals > 0)
}
