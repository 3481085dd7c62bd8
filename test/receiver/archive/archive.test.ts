import { createHash, randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import sharp from 'sharp'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { findFfmpeg } from '../../../src/platform/ffmpeg.ts'
import { leaseSeconds } from '../../../src/platform/postgres/lease-keeper.ts'
import { later, postgresTime } from '../../../src/platform/postgres/time.ts'
import { claimCopies, endCopy, wantFile } from '../../../src/receiver/archive/copies.ts'
import { readProblems } from '../../../src/receiver/on-call/problems.ts'
import { readingOptions } from '../../../src/receiver/on-call/reading.ts'
import { videoOfPng } from '../../platform/support/crafted-media.ts'
import { preferredServer, type TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { startTestReceiver, type TestReceiver } from '../../support/receiver.ts'
import { deliver } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import {
  archivedMedia,
  failedCopy,
  mediaStand,
  pngOf,
  retryNow,
  temporaryFolder,
  type MediaStand,
} from './media-stand.ts'

const maxBytes = 300_000
const ffmpeg = await findFfmpeg(undefined, new AbortController().signal)

describe('the archive', () => {
  let database: TestDatabase
  let receiver: TestReceiver
  let stand: MediaStand
  let root: string

  beforeAll(async () => {
    const folder = await temporaryFolder()
    ;({ root } = folder)
    const settings = { mediaArchive: { kind: 'file', root } as const, mediaArchiveMaxBytes: maxBytes }
    const its = await withReceiver({ server: preferredServer, stand: true, settings })
    ;({ database, receiver } = its)
    stand = mediaStand(its)
    return async () => {
      await its.stop()
      await folder.remove()
    }
  })

  const changesOf = async (requestId: string) =>
    (await database.sql`select status from mediadock.feed where request_id = ${requestId} and media_complete`).length
  const filesIn = async () =>
    (await fs.readdir(root, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile())

  it('copies each media of a complete result, each with a change of the feed', async () => {
    const pictures = [pngOf(40), pngOf(8, 255)]
    const requestId = await stand.land(pictures.map((picture, at) => stand.serve(`${at}.png`, picture)))
    const rows = await archivedMedia(database, requestId)
    for (const [at, picture] of pictures.entries()) {
      const sha256 = createHash('sha256').update(picture).digest('hex')
      expect(rows[at]).toMatchObject({
        bytes: String(picture.length),
        content_type: 'image/png',
        sha256,
        archive_error: null,
      })
      expect(await fs.readFile(fileURLToPath(rows[at]?.archived_url ?? ''))).toEqual(picture)
      expect(
        (await fs.readFile(path.join(root, sha256.slice(0, 2), `${sha256}.thumbnail.webp`))).toString('latin1', 8, 12),
      ).toBe('WEBP')
    }
    // One for the result, and one for each of its media.
    await eventually(async () => (await changesOf(requestId)) === 3)
    expect(await fs.readdir(path.join(root, 'incoming'))).toEqual([])
  })

  it('stores the same file of several requests once', async () => {
    const picture = pngOf(16)
    const [first] = await archivedMedia(database, await stand.land([stand.serve('same-1.png', picture)]))
    const kept = fileURLToPath(first?.archived_url ?? '')
    const { ino } = await fs.stat(kept)
    const [second] = await archivedMedia(database, await stand.land([stand.serve('same-2.png', picture)]))
    expect(second?.archived_url).toBe(first?.archived_url)
    expect((await fs.stat(kept)).ino).toBe(ino)
    expect((await filesIn()).filter(({ name }) => name === `${first?.sha256}.png`)).toHaveLength(1)
  })

  it('waits until a result is complete', async () => {
    const link = stand.serve('first.png', pngOf(17))
    const requestId = randomUUID()
    const payload = { model: 'aurora-image', output: { images: [{ url: link }] }, cost: 4 }
    await deliver(receiver.webhookUrl, Buffer.from(JSON.stringify({ request_id: requestId, status: 'OK', payload })))
    const position = await eventually(async () => {
      const [row] =
        await database.sql`select position from mediadock.feed where request_id = ${requestId} and not media_complete`
      return row?.['position'] as string | undefined
    })
    await eventually(
      async () =>
        (await database.sql`select 1 from mediadock.archive_progress where position >= ${position}`).length > 0,
    )
    expect(await database.sql`select 1 from mediadock.media_copies where request_id = ${requestId}`).toHaveLength(0)
  })

  it('refuses a file announced as too large without reading it', async () => {
    const link = stand.serve(
      'announced.png',
      (res) => void res.writeHead(200, { 'content-length': maxBytes + 1 }).write(pngOf(8)),
    )
    const [row] = await archivedMedia(database, await stand.land([link]))
    expect(row?.archive_error).toContain('MEDIA_ARCHIVE_MAX_BYTES')
  })

  it('retries an interrupted download after a pause', async () => {
    const picture = pngOf(24)
    let calls = 0
    const link = stand.serve('cut.png', (res) => {
      calls += 1
      res.writeHead(200, { 'content-length': picture.length })
      if (calls > 1) return void res.end(picture)
      res.write(picture.subarray(0, 30))
      return void setTimeout(() => res.destroy(), 20)
    })
    const requestId = await stand.land([link])
    expect(await failedCopy(database, requestId, 'unreachable', 1)).toMatchObject({ state: 'waiting', tries: 1 })
    expect(await fs.readdir(path.join(root, 'incoming'))).toEqual([])
    await retryNow(database, requestId)
    expect(await archivedMedia(database, requestId)).toMatchObject([
      { bytes: String(picture.length), archive_error: null },
    ])
  })

  it.each([
    [
      'a page that calls itself a picture',
      Buffer.from('<!doctype html><script>alert(1)</script>'),
      'of an unknown type',
    ],
    ['a sound in place of a picture', Buffer.concat([Buffer.from('ID3'), Buffer.alloc(6000)]), 'audio/mpeg'],
    [
      'more bytes than are allowed, by its length',
      Buffer.concat([pngOf(8), Buffer.alloc(maxBytes)]),
      'MEDIA_ARCHIVE_MAX_BYTES',
    ],
  ])('stores nothing of %s', async (_what, content, why) => {
    const requestId = await stand.land([stand.serve('liar.png', content)])
    const [row] = await archivedMedia(database, requestId)
    expect(row?.archive_error).toContain(`refused: `)
    expect(row?.archive_error).toContain(why)
    expect(row).toMatchObject({ archived_url: null, sha256: null, archived_at: null })
    expect(await fs.readdir(path.join(root, 'incoming'))).toEqual([])
  })

  it('stops reading above the limit, regardless of the announced length', async () => {
    let isCut = false
    const link = stand.serve('endless.png', (res) => {
      res.writeHead(200, { 'content-type': 'image/png' }).write(pngOf(8))
      const more = setInterval(() => res.write(Buffer.alloc(65_536)), 1)
      res.on('close', () => {
        clearInterval(more)
        isCut = true
      })
    })
    const [row] = await archivedMedia(database, await stand.land([link]))
    expect(row?.archive_error).toContain('MEDIA_ARCHIVE_MAX_BYTES')
    await eventually(() => isCut)
  })

  it('gives up a link that keeps answering 403, and records that beside the media', async () => {
    const requestId = await stand.land([stand.serve('expired.png', (res) => void res.writeHead(403).end())])
    for (let tries = 1; tries < 4; tries += 1) {
      expect(await failedCopy(database, requestId, 'gone', tries)).toMatchObject({ state: 'waiting', tries })
      await retryNow(database, requestId)
    }
    expect(await archivedMedia(database, requestId)).toMatchObject([
      { archive_error: 'gone: the provider answered 403' },
    ])
    const problems = await readProblems(receiver.deps.db, await readingOptions(receiver.deps))
    expect(problems).toContainEqual(
      expect.objectContaining({ cause: 'media_gone', count: 1, href: `/requests/${requestId}` }),
    )
    expect(problems).toContainEqual(expect.objectContaining({ cause: 'media_not_archived' }))
  })

  it.each([
    ['an address that is not public', 'https://10.1.2.3/x.png', 'is not public'],
    ['a service of the cloud, in the clear', 'http://169.254.169.254/latest', 'is not https'],
    ['another scheme', 'file:///etc/passwd', 'neither https nor http'],
  ])('follows no redirect to %s', async (_what, location, why) => {
    const link = stand.serve('elsewhere.png', (res) => void res.writeHead(302, { location }).end())
    const [row] = await archivedMedia(database, await stand.land([link]))
    expect(row?.archive_error).toContain(why)
  })

  it('follows a redirect to an allowed address', async () => {
    const picture = pngOf(12)
    const there = stand.serve('there.png', picture)
    const link = stand.serve('here.png', (res) => void res.writeHead(302, { location: there }).end())
    expect(await archivedMedia(database, await stand.land([link]))).toMatchObject([{ bytes: String(picture.length) }])
  })

  it('stores a picture of too many pixels without decoding it', async () => {
    const bomb = pngOf(12_000)
    expect(bomb.length).toBeLessThan(maxBytes)
    const [row] = await archivedMedia(database, await stand.land([stand.serve('bomb.png', bomb)]))
    expect(row).toMatchObject({ bytes: String(bomb.length), archive_error: null })
    expect(
      await database.sql`select has_thumbnail from mediadock.archived_files where sha256 = ${row?.sha256 ?? ''}`,
    ).toMatchObject([{ has_thumbnail: false }])
  })

  it.skipIf(!ffmpeg)('stores a video with one frame of it (skipped without ffmpeg)', async () => {
    const video = await fs.readFile(
      path.resolve(import.meta.dirname, '../../../src/provider/engines/samples/video.mp4'),
    )
    const [row] = await archivedMedia(database, await stand.landVideo(stand.serve('a.mp4', video)))
    expect(row).toMatchObject({ bytes: String(video.length), content_type: 'video/mp4', archive_error: null })
    const frame = await sharp(
      path.join(root, (row?.sha256 ?? '').slice(0, 2), `${row?.sha256}.thumbnail.webp`),
    ).metadata()
    expect(Math.max(frame.width, frame.height)).toBeLessThanOrEqual(320)
  })

  it.each([
    ['what only begins like a video', Buffer.from(`\0\0\0\x18ftypisom${'#EXTM3U\nfile:///etc/passwd\n'.repeat(20)}`)],
    ['a video that takes too much to decode', videoOfPng(pngOf(20), 80_000_000)],
  ])('stores %s without a frame', async (_what, hoax) => {
    const [row] = await archivedMedia(database, await stand.landVideo(stand.serve('hoax.mp4', hoax)))
    expect(row).toMatchObject({ content_type: 'video/mp4', archive_error: null })
    expect(
      await database.sql`select has_thumbnail from mediadock.archived_files where sha256 = ${row?.sha256 ?? ''}`,
    ).toMatchObject([{ has_thumbnail: false }])
  })

  it('counts a damaged picture as a failed try', async () => {
    const picture = pngOf(400)
    const requestId = await stand.land([
      stand.serve('damaged.png', Buffer.concat([picture.subarray(0, -60), Buffer.alloc(20)])),
    ])
    expect((await failedCopy(database, requestId, 'unreachable', 1)).trouble).toContain('damaged')
  })

  it('copies a media again if its link has changed', async () => {
    const [old, fresh] = [pngOf(10), pngOf(11)]
    const requestId = await stand.land([stand.serve('old.png', old)])
    await archivedMedia(database, requestId)
    const link = stand.serve('fresh.png', fresh)
    // As landing does where the provider's own result overrules a webhook.
    await database.sql`
      with m as (update mediadock.media set url = ${link} where request_id = ${requestId})
      insert into mediadock.changes (changed_at, request_ids, statuses, media_complete) values (now(), array[${requestId}::uuid], array[1::smallint], array[true])`
    const sha256 = createHash('sha256').update(fresh).digest('hex')
    await eventually(async () => (await archivedMedia(database, requestId))[0]?.sha256 === sha256)
    const gone = createHash('sha256').update(old).digest('hex')
    await eventually(async () => !(await filesIn()).some(({ name }) => name.startsWith(gone)))
  })

  it('lets only the last claimant end a copy', async () => {
    const other = await withReceiver({ server: preferredServer })
    onTestFinished(other.stop)
    const { db } = other.receiver.deps
    const { sql } = other.database
    const requestId = '5b0c1d4e-0000-4000-8000-000000000001'
    await sql`with landed as (insert into mediadock.requests (request_id, status, landed_at, media_complete) values (${requestId}, 'COMPLETED', now(), true))
      insert into mediadock.media (request_id, kind, position, url) values (${requestId}, 'image', 0, 'https://media.test/a.png')`
    await sql`insert into mediadock.media_copies (request_id, kind, position, url, state, due_at)
      values (${requestId}, 'image', 0, 'https://media.test/a.png', 'waiting', now() - interval '1 second')`
    const [dead] = await claimCopies(db, { limit: 5 })
    expect(await claimCopies(db, { limit: 5 })).toEqual([])
    // Its process has died, so the lease is not renewed.
    const [alive] = await claimCopies(db, { now: later(postgresTime(), leaseSeconds + 1), limit: 5 })
    const file = { sha256: 'a'.repeat(64), bytes: 3, contentType: 'image/png' }
    const incarnation = String(await wantFile(db, file))
    const end = { ...file, incarnation, archivedUrl: 'file:///a.png', hasThumbnail: false }
    if (!dead || !alive) throw new Error('nothing was claimed')
    expect(await endCopy(db, dead, end)).toBe(false)
    expect(await sql`select 1 from mediadock.archived_files where look_at is null`).toHaveLength(0)
    expect(await endCopy(db, alive, end)).toBe(true)
    expect(await endCopy(db, alive, end)).toBe(false)
    expect(await sql`select bytes from mediadock.media where sha256 = ${file.sha256}`).toHaveLength(1)
  })

  it('copies results that landed before the archive existed, and writes nothing without an archive', async () => {
    const folder = await temporaryFolder()
    onTestFinished(folder.remove)
    const without = await withReceiver({ server: preferredServer, stand: true })
    onTestFinished(without.stop)
    const late = mediaStand(without)
    const requestId = await late.land([late.serve('early.png', pngOf(9))])
    await eventually(
      async () => (await without.database.sql`select 1 from mediadock.feed where media_complete`).length > 0,
    )
    expect(await without.database.sql`select position from mediadock.archive_progress`).toMatchObject([
      { position: '0' },
    ])
    expect(await without.database.sql`select 1 from mediadock.media_copies`).toHaveLength(0)
    const settings = { mediaArchive: { kind: 'file', root: folder.root } as const }
    const archiving = await startTestReceiver({ databaseUrl: without.database.url, settings })
    onTestFinished(() => archiving.stop())
    expect(await archivedMedia(without.database, requestId)).toMatchObject([{ content_type: 'image/png' }])
  })

  it('releases its copies when it stops, and another process continues', async () => {
    const folder = await temporaryFolder()
    onTestFinished(folder.remove)
    const settings = { mediaArchive: { kind: 'file', root: folder.root } as const }
    const first = await withReceiver({ server: preferredServer, stand: true, settings })
    onTestFinished(first.stop)
    const slow = mediaStand(first)
    const picture = pngOf(14)
    let calls = 0
    const link = slow.serve('slow.png', (res) => {
      calls += 1
      res.writeHead(200, { 'content-length': picture.length })
      return calls > 1 ? void res.end(picture) : void res.write(picture.subarray(0, 40))
    })
    const requestId = await slow.land([link])
    await eventually(() => calls === 1)
    await first.receiver.stop()
    expect(await first.database.sql`select state, tries, due_at <= now() as due from mediadock.media_copies`).toEqual([
      { state: 'waiting', tries: 0, due: true },
    ])
    expect(await fs.readdir(path.join(folder.root, 'incoming'))).toEqual([])
    const second = await startTestReceiver({ databaseUrl: first.database.url, settings })
    onTestFinished(() => second.stop())
    expect(await archivedMedia(first.database, requestId)).toMatchObject([{ bytes: String(picture.length) }])
  })

  it('reports a problem if it cannot be opened', async () => {
    const folder = await temporaryFolder()
    onTestFinished(folder.remove)
    await fs.writeFile(path.join(folder.root, 'file'), '')
    const settings = { mediaArchive: { kind: 'file', root: path.join(folder.root, 'file') } as const }
    const its = await withReceiver({ server: preferredServer, stand: true, settings })
    onTestFinished(its.stop)
    const where = mediaStand(its)
    await failedCopy(its.database, await where.land([where.serve('a.png', pngOf(4))]), 'store', 0)
    const problems = await readProblems(its.receiver.deps.db, await readingOptions(its.receiver.deps))
    expect(problems).toContainEqual(expect.objectContaining({ cause: 'archive_store', severity: 'critical', count: 1 }))
  })

  it('exports metrics', async () => {
    const text = await (await fetch(`${receiver.internalUrl}metrics`)).text()
    expect(text).toMatch(/mediadock_archive_copies_total\{outcome="archived"\} [1-9]/)
    expect(text).toMatch(/mediadock_archive_waiting \d/)
  })
})
