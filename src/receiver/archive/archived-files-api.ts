import { pipeline } from 'node:stream/promises'
import { Router, type Request, type Response } from 'express'
import { HttpError, methodNotAllowed } from '../../platform/http/http.ts'
import { and, eq, isNotNull, isNull } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { boundCalls } from '../api/event-stream.ts'
import { gone } from '../api/operation.ts'
import { nameOfFile } from '../domain/archived-file.ts'
import type { ReceiverDeps } from '../program.ts'
import { readWithin } from '../queries/deadline.ts'
import * as archive from './archive-schema.ts'
import { openStore } from './file-store.ts'
import { nameOfThumbnail, StoreError, type ArchiveStore, type ByteRange } from './store.ts'

/**
 * Serves the files of the archive by content, for the console and for services without access to the store: `GET
 * /media/<sha256>`, with ranges, and `/media/<sha256>/thumbnail`. A served file cannot run code: its type comes from
 * its content and is one of a few, browsers must not guess another, and the sandbox has no rights.
 */
export function archivedFiles({ settings: { mediaArchive }, db, logger, signal }: ReceiverDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  let opening: Promise<ArchiveStore> | undefined
  const bounded = boundCalls(64, 'files are being read')

  const open = async (): Promise<ArchiveStore> => {
    if (mediaArchive === undefined) throw notThere('there is no archive: set MEDIA_ARCHIVE to have one')
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
    if (file === undefined || (isThumbnail && !file.has_thumbnail)) throw notThere('the archive has no such file')
    const headers = headersOf(file, isThumbnail)
    if (isKnown(req, headers.ETag)) return void res.set(headers).status(304).end()
    const stop = AbortSignal.any([signal, gone(res)])
    await bounded(() => sendFile(store, { file, isThumbnail, headers }, { req, res, stop }))
  }

  const answer = (isThumbnail: boolean) => async (req: Request, res: Response) => {
    try {
      await send(req, res, isThumbnail)
    } catch (error) {
      // The connection is cut, so that the client notices from Content-Length that the file is incomplete.
      if (res.headersSent) return void res.destroy()
      if (!(error instanceof StoreError)) throw error
      logger.error({ err: error }, 'a file of the archive could not be read')
      const message = 'the archive cannot be read: try again after Retry-After seconds'
      throw new HttpError(503, 'archive_unavailable', message, { headers: { 'retry-after': '5' } })
    }
  }
  router.get('/media/:sha256', answer(false)).all('/media/:sha256', methodNotAllowed('GET', 'HEAD'))
  router.get('/media/:sha256/thumbnail', answer(true)).all('/media/:sha256/thumbnail', methodNotAllowed('GET', 'HEAD'))
  return router
}

type Headers = ReturnType<typeof headersOf>

async function sendFile(
  store: ArchiveStore,
  { file, isThumbnail, headers }: { file: FoundFile; isThumbnail: boolean; headers: Headers },
  { req, res, stop }: { req: Request; res: Response; stop: AbortSignal },
): Promise<void> {
  const { sha256, content_type: contentType, bytes } = file
  const range = isThumbnail ? undefined : rangeOf(req, headers.ETag, bytes)
  const name = isThumbnail ? nameOfThumbnail(sha256) : nameOfFile({ sha256, contentType })
  const found = await store.read(name, stop, range)
  if (found === undefined || (!isThumbnail && found.bytes !== bytes)) {
    found?.stream.destroy()
    throw notThere(`the ${isThumbnail ? 'thumbnail' : 'file'} is not in the archive of MEDIA_ARCHIVE`)
  }
  // Not before, so that no error is cached with the headers of the file.
  res.set(headers)
  if (range !== undefined) res.status(206).set('Content-Range', `bytes ${range.start}-${range.end}/${bytes}`)
  res.set('Content-Length', String(range === undefined ? found.bytes : range.end - range.start + 1))
  if (req.method === 'HEAD') {
    found.stream.on('error', () => {}).destroy()
    return void res.end()
  }
  // A client that accepts no data for this long is disconnected.
  res.setTimeout(30_000, () => res.destroy())
  await pipeline(found.stream, res)
}

/** Returns the range to send; undefined for the whole file. Throws HttpError 416. */
function rangeOf(req: Request, tag: string, bytes: number): ByteRange | undefined {
  const condition = req.headers['if-range']
  if (condition !== undefined && condition !== tag) return undefined
  const ranges = req.range(bytes)
  if (ranges === -1)
    throw new HttpError(416, 'range_not_satisfiable', 'the range lies outside the file', {
      headers: { 'content-range': `bytes */${bytes}` },
    })
  if (ranges === undefined || ranges === -2 || ranges.type !== 'bytes' || ranges.length !== 1) return undefined
  return ranges[0]
}

/** Returns true if the client has the file. Not req.fresh: fetch() adds no-cache, which counts against it. */
function isKnown(req: Request, known: string): boolean {
  const tags = req.headers['if-none-match']?.split(',').map((tag) => tag.trim().replace(/^W\//, '')) ?? []
  return tags.includes('*') || tags.includes(known)
}

function headersOf({ sha256, content_type }: FoundFile, isThumbnail: boolean) {
  return {
    'Content-Type': isThumbnail ? 'image/webp' : content_type,
    ETag: `"${sha256}${isThumbnail ? '-thumbnail' : ''}"`,
    ...(!isThumbnail && { 'Accept-Ranges': 'bytes' }),
    // Files need a sign-in: the browser may cache them, proxies may not.
    'Cache-Control': 'private, max-age=31536000, immutable',
    'X-Content-Type-Options': 'nosniff',
    'Content-Security-Policy': "default-src 'none'; sandbox",
  }
}

function notThere(message: string): HttpError {
  return new HttpError(404, 'not_found', message)
}

type FoundFile = Pick<typeof archive.archivedFiles.$inferSelect, 'sha256' | 'content_type' | 'has_thumbnail' | 'bytes'>

/** Finds a file by its content; undefined if it is not stored or is being deleted. */
async function findArchivedFile(db: Database, content: string): Promise<FoundFile | undefined> {
  const { sha256, content_type, has_thumbnail, bytes, stored_at, removing_at } = archive.archivedFiles
  const [file] = await readWithin(db, async (tx) =>
    tx
      .select({ sha256, content_type, has_thumbnail, bytes })
      .from(archive.archivedFiles)
      .where(and(eq(sha256, content), isNotNull(stored_at), isNull(removing_at))),
  )
  return file
}
