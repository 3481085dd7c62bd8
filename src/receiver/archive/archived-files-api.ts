import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { Router, type Request, type Response } from 'express'
import { HttpError, methodNotAllowed } from '../../platform/http/http.ts'
import type { ReceiverDeps } from '../program.ts'
import { findArchivedFile, type FoundFile } from './find-archived-file.ts'
import { openStore } from './open-store.ts'
import { StoreError, type ArchiveStore, type ByteRange } from './store.ts'

const yearSeconds = 31_536_000
/** Who takes nothing for so long has gone. */
const stallMs = 30_000
const maxReaders = 64

/**
 * The files of the archive by their content, for the console and for services without a hand in the archive itself:
 * `GET /media/<sha256>`, with ranges, and `/media/<sha256>/thumbnail`. What is served runs nothing: its type is one of
 * a few, by its own content, nobody may guess another, and the page that it makes by itself is empty of rights.
 */
export function archivedFiles({ settings: { mediaArchive }, db, logger, signal }: ReceiverDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  let opening: Promise<ArchiveStore> | undefined
  let readers = 0

  const open = async (): Promise<ArchiveStore> => {
    if (mediaArchive === undefined) throw notThere('there is no archive: MEDIA_ARCHIVE is not set')
    opening ??= openStore(mediaArchive)
    return opening.catch((error: unknown) => {
      opening = undefined
      throw error
    })
  }

  const send = async (req: Request, res: Response, isThumbnail: boolean) => {
    const sha256 = String(req.params['sha256'])
    const store = await open()
    const file = /^[0-9a-f]{64}$/.test(sha256) ? await findArchivedFile(db, sha256) : undefined
    if (file === undefined || (isThumbnail && !file.has_thumbnail))
      throw notThere('there is no such file in the archive')
    res.set(headersOf(file, isThumbnail))
    if (isKnown(req, res)) return void res.status(304).end()
    if (readers >= maxReaders) throw tooMany()
    readers += 1
    try {
      const stop = AbortSignal.any([signal, closed(res)])
      await (isThumbnail
        ? sendThumbnail(store, sha256, { req, res, stop })
        : sendFile(store, { sha256, file }, { req, res, stop }))
    } finally {
      readers -= 1
    }
  }

  const answer = (isThumbnail: boolean) => async (req: Request, res: Response) => {
    try {
      await send(req, res, isThumbnail)
    } catch (error) {
      // Cut, by the reader or with the archive: its length says that it is not whole.
      if (res.headersSent) return void res.destroy()
      // The headers of a file that is not sent would be kept with the refusal.
      for (const name of ['Cache-Control', 'ETag', 'Content-Type', 'Content-Length', 'Accept-Ranges', 'Content-Range'])
        res.removeHeader(name)
      if (!(error instanceof StoreError)) throw error
      logger.error({ err: error }, 'a file of the archive could not be read')
      throw new HttpError(503, 'archive_unavailable', 'the archive cannot be read at this moment', {
        headers: { 'retry-after': '5' },
      })
    }
  }
  router.get('/media/:sha256', answer(false)).all('/media/:sha256', methodNotAllowed('GET', 'HEAD'))
  router.get('/media/:sha256/thumbnail', answer(true)).all('/media/:sha256/thumbnail', methodNotAllowed('GET', 'HEAD'))
  return router
}

type Sending = { req: Request; res: Response; stop: AbortSignal }

async function sendThumbnail(store: ArchiveStore, sha256: string, { req, res, stop }: Sending): Promise<void> {
  const found = await store.read({ thumbnailOf: sha256 }, stop)
  if (found === undefined) throw notThere('its thumbnail is not in the archive')
  res.set('Content-Length', String(found.bytes))
  return give(req, res, found.stream)
}

async function sendFile(
  store: ArchiveStore,
  { sha256, file }: { sha256: string; file: FoundFile },
  { req, res, stop }: Sending,
): Promise<void> {
  const range = rangeOf(req, res, file.bytes)
  const found = await store.read({ sha256, contentType: file.content_type }, stop, range)
  if (found === undefined || found.bytes !== file.bytes) {
    found?.stream.destroy()
    throw notThere('the file is not in the archive that MEDIA_ARCHIVE names')
  }
  if (range !== undefined) res.status(206).set('Content-Range', `bytes ${range.start}-${range.end}/${file.bytes}`)
  res.set('Content-Length', String(range === undefined ? file.bytes : range.end - range.start + 1))
  return give(req, res, found.stream)
}

async function give(req: Request, res: Response, stream: Readable): Promise<void> {
  if (req.method === 'HEAD') {
    stream.on('error', () => {}).destroy()
    return void res.end()
  }
  res.setTimeout(stallMs, () => res.destroy())
  await pipeline(stream, res)
}

/** One range; several, or what is no range, are answered with the whole. Throws HttpError 416. */
function rangeOf(req: Request, res: Response, bytes: number): ByteRange | undefined {
  const condition = req.headers['if-range']
  if (condition !== undefined && condition !== res.getHeader('ETag')) return undefined
  const ranges = req.range(bytes)
  if (ranges === -1)
    throw new HttpError(416, 'range_not_satisfiable', 'the range lies outside the file', {
      headers: { 'content-range': `bytes */${bytes}` },
    })
  if (ranges === undefined || ranges === -2 || ranges.type !== 'bytes' || ranges.length !== 1) return undefined
  return ranges[0]
}

/** By the tag alone: a file of this content never changes, however fresh an answer is wanted. */
function isKnown(req: Request, res: Response): boolean {
  const tags = req.headers['if-none-match']?.split(',').map((tag) => tag.trim().replace(/^W\//, '')) ?? []
  return tags.includes('*') || tags.includes(String(res.getHeader('ETag')))
}

function headersOf({ sha256, content_type }: FoundFile, isThumbnail: boolean): Record<string, string> {
  return {
    'Content-Type': isThumbnail ? 'image/webp' : content_type,
    ETag: `"${sha256}${isThumbnail ? '-thumbnail' : ''}"`,
    ...(!isThumbnail && { 'Accept-Ranges': 'bytes' }),
    // Behind the sign-in: kept by the browser of who may see it, and by no proxy on the way.
    'Cache-Control': `private, max-age=${yearSeconds}, immutable`,
    'X-Content-Type-Options': 'nosniff',
    'Content-Security-Policy': "default-src 'none'; sandbox",
  }
}

function closed(res: Response): AbortSignal {
  const gone = new AbortController()
  res.once('close', () => gone.abort())
  return gone.signal
}

function notThere(message: string): HttpError {
  return new HttpError(404, 'not_found', message)
}

function tooMany(): HttpError {
  return new HttpError(503, 'too_many_waiting', `${maxReaders} files are being read already`, {
    headers: { 'retry-after': '5' },
  })
}
