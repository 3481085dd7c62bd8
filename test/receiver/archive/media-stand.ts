import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import type http from 'node:http'
import os from 'node:os'
import path from 'node:path'
import { deflateSync, crc32 } from 'node:zlib'
import type { Fetcher } from '../../../src/receiver/fetching/fetcher.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult, json, type ProviderStand } from '../../support/provider-stand.ts'
import { deliver, okImage, okVideo, type Sample } from '../../support/webhooks.ts'
import type { WithReceiver } from '../../support/with-receiver.ts'

export type Serve = (res: http.ServerResponse, req: http.IncomingMessage) => void

export type MediaStand = {
  /** Lets the stand serve a file, and answers its link. */
  serve: (name: string, how: Buffer | Serve) => string
  /** Lands a complete result with these pictures, and answers its id. */
  land: (links: readonly string[]) => Promise<string>
  /** The same with one video. */
  landVideo: (link: string) => Promise<string>
}

/** The provider stand, serving files besides, and results that link to them. */
export function mediaStand({
  stand,
  receiver,
}: {
  stand: ProviderStand
  receiver: WithReceiver['receiver']
}): MediaStand {
  const files = new Map<string, Serve>()
  const results = new Map<string, object>()
  stand.answer((id, req, res) => {
    const serve = files.get(req.url ?? '')
    if (serve) return serve(res, req)
    const output = results.get(id)
    return output === undefined ? json(res, 404, {}) : json(res, 200, { ...imageResult(id), output })
  })
  const landed = async ({ requestId, body }: Sample, output: object) => {
    results.set(requestId, output)
    await deliver(receiver.webhookUrl, body)
    // A poll that fails is scheduled again, but no role of this receiver makes that poll.
    await eventually(async () => {
      const ending = await receiver.deps.background.reconcileOne(requestId)
      return ending === 'landed' || ending === 'known'
    })
    return requestId
  }
  return {
    serve: (name, how) => {
      const at = `/media/${randomUUID()}/${name}`
      files.set(
        at,
        Buffer.isBuffer(how) ? (res) => void res.writeHead(200, { 'content-length': how.length }).end(how) : how,
      )
      return `${stand.url}${at}`
    },
    land: (links) => landed(okImage(), { images: links.map((url) => ({ url, width: 4, height: 4 })) }),
    landVideo: (url) => landed(okVideo(), { video: { url, width: 64, height: 64, duration: 1 } }),
  }
}

/** A fetcher of a source that knows no request. */
export const unknownResult: Fetcher = async () => ({ answer: { kind: 'not_found' }, keyName: undefined })

export type MediaRow = {
  position: number
  url: string
  archived_url: string | null
  bytes: string | null
  content_type: string | null
  sha256: string | null
  archived_at: Date | null
  archive_error: string | null
}

/** The media of a request, once each has been archived or given up. A failure names the last poll and the copies. */
export function archivedMedia({ sql }: WithReceiver['database'], requestId: string): Promise<MediaRow[]> {
  return eventually(async () => {
    const rows = await sql<MediaRow[]>`select * from mediadock.media where request_id = ${requestId} order by position`
    const isDone = ({ archived_at, archive_error }: MediaRow) => archived_at !== null || archive_error !== null
    if (rows.length > 0 && rows.every(isDone)) return [...rows]
    const polled = await sql`
      select status, media_complete, poll_outcome, poll_detail from mediadock.requests where request_id = ${requestId}`
    const copies = await sql`
      select state, due_at, claims, unended, tries, fault, trouble from mediadock.media_copies
      where request_id = ${requestId}`
    throw new Error(`not archived: ${JSON.stringify({ polled, copies })}`)
  })
}

export type CopyRow = { state: string; tries: number; fault: string | null; trouble: string | null }

/** Waits until the copy of a request's only media matches, and returns it. */
export function failedCopy(
  { sql }: WithReceiver['database'],
  requestId: string,
  fault: string,
  tries: number,
): Promise<CopyRow> {
  return eventually(async () => {
    const [row] = await sql<
      CopyRow[]
    >`select state, tries, fault, trouble from mediadock.media_copies where request_id = ${requestId} and fault = ${fault} and tries >= ${tries}`
    return row
  })
}

/** Does not wait for the pause of what was put off. */
export async function retryNow({ sql }: WithReceiver['database'], requestId: string): Promise<void> {
  await sql`update mediadock.media_copies set due_at = now() - interval '1 second' where request_id = ${requestId} and state = 'waiting'`
}

export async function temporaryFolder(): Promise<{ root: string; remove: () => Promise<void> }> {
  const root = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-archive-'))
  return { root, remove: () => fs.rm(root, { recursive: true, force: true }) }
}

/** A PNG of one colour, in black and white: a few bytes for however many pixels. */
export function pngOf(edge: number, colour: 0 | 255 = 0, note: string = randomUUID()): Buffer {
  const header = Buffer.alloc(13)
  header.writeUInt32BE(edge, 0)
  header.writeUInt32BE(edge, 4)
  header[8] = 1
  const row = Buffer.alloc(1 + Math.ceil(edge / 8), colour)
  row[0] = 0
  const rows = Buffer.concat(Array.from({ length: edge }, () => row))
  const chunks = [
    chunk('IHDR', header),
    chunk('tEXt', Buffer.from(`Comment\0${note}`)),
    chunk('IDAT', deflateSync(rows)),
    chunk('IEND', Buffer.alloc(0)),
  ]
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), ...chunks])
}

/** The bytes as some models return them. */
export function dataUri(bytes: Buffer, type = 'image/png'): string {
  return `data:${type};base64,${bytes.toString('base64')}`
}

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data])
  const framed = Buffer.alloc(body.length + 8)
  framed.writeUInt32BE(data.length, 0)
  body.copy(framed, 4)
  framed.writeUInt32BE(crc32(body), body.length + 4)
  return framed
}
