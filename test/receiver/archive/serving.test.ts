import { createHash } from 'node:crypto'
import fs from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { beforeAll, describe, expect, it } from 'vitest'
import { preferredServer, type TestDatabase } from '../../support/database.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { call } from '../api/calls.ts'
import { archivedMedia, mediaStand, pngOf, temporaryFolder, type MediaStand } from './media-stand.ts'

const token = 'a token of more than thirty-two characters'

describe('GET /media', () => {
  let database: TestDatabase
  let receiver: TestReceiver
  let stand: MediaStand
  let requestId: string
  const picture = pngOf(60)
  const sha256 = createHash('sha256').update(picture).digest('hex')

  beforeAll(async () => {
    const folder = await temporaryFolder()
    const settings = { mediaArchive: { kind: 'file', root: folder.root } as const, internalToken: token }
    const its = await withReceiver({ server: preferredServer, stand: true, settings })
    ;({ database, receiver } = its)
    stand = mediaStand(its)
    requestId = await stand.land([stand.serve('a.png', picture)])
    await archivedMedia(database, requestId)
    return async () => {
      await its.stop()
      await folder.remove()
    }
  })

  const get = (path: string, headers: Record<string, string> = {}, method = 'GET') =>
    fetch(`${receiver.internalUrl}${path}`, { method, headers: { authorization: `Bearer ${token}`, ...headers } })
  const bytesOf = async (response: Response) => Buffer.from(await response.arrayBuffer())

  it('serves a file that cannot run scripts and may be cached forever', async () => {
    const response = await get(`media/${sha256}`)
    expect([response.status, await bytesOf(response)]).toEqual([200, picture])
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'content-type': 'image/png',
      'content-length': String(picture.length),
      'cache-control': 'private, max-age=31536000, immutable',
      'content-security-policy': "default-src 'none'; sandbox",
      'x-content-type-options': 'nosniff',
      'accept-ranges': 'bytes',
      etag: `"${sha256}"`,
    })
    expect((await get(`media/${sha256}`, { 'if-none-match': `"${sha256}"` })).status).toBe(304)
    const head = await get(`media/${sha256}`, {}, 'HEAD')
    expect([head.status, head.headers.get('content-length'), (await bytesOf(head)).length]).toEqual([
      200,
      String(picture.length),
      0,
    ])
  })

  it.each([
    ['bytes=1-3', 206, [1, 4]],
    ['bytes=-8', 206, [-8, undefined]],
    ['bytes=5-', 206, [5, undefined]],
    ['bytes=0-0,2-2', 200, [0, undefined]],
    ['lines=1-2', 200, [0, undefined]],
  ])('answers the range %s with %i', async (range, status, [from, to]) => {
    const response = await get(`media/${sha256}`, { range })
    expect([response.status, await bytesOf(response)]).toEqual([status, picture.subarray(from, to)])
    if (status === 206)
      expect(response.headers.get('content-range')).toMatch(new RegExp(`^bytes \\d+-\\d+/${picture.length}$`))
  })

  it('answers the whole file if If-Range names another one, and 416 for a range outside', async () => {
    expect((await get(`media/${sha256}`, { range: 'bytes=1-3', 'if-range': '"another"' })).status).toBe(200)
    const outside = await get(`media/${sha256}`, { range: `bytes=${picture.length}-` })
    expect([outside.status, outside.headers.get('content-range'), outside.headers.get('cache-control')]).toEqual([
      416,
      `bytes */${picture.length}`,
      null,
    ])
  })

  it('serves the thumbnail', async () => {
    const response = await get(`media/${sha256}/thumbnail`)
    expect([response.status, response.headers.get('content-type')]).toEqual([200, 'image/webp'])
    expect((await bytesOf(response)).toString('latin1', 8, 12)).toBe('WEBP')
  })

  it.each([
    ['media/no-digest'],
    [`media/${'0'.repeat(64)}`],
    [`media/${'0'.repeat(64)}/thumbnail`],
    ['media/..%2f..%2fetc%2fpasswd'],
  ])('answers 404 for %s', async (path) => {
    const response = await get(path)
    expect([response.status, response.headers.get('cache-control')]).toEqual([404, null])
  })

  it('serves nothing without the token', async () => {
    expect((await get(`media/${sha256}`, { authorization: 'Bearer wrong' })).status).toBe(401)
  })

  it('answers 404 for a file that the archive lacks', async () => {
    const lost = pngOf(13)
    const [row] = await archivedMedia(database, await stand.land([stand.serve('lost.png', lost)]))
    await fs.rm(fileURLToPath(row?.archived_url ?? ''))
    const response = await get(`media/${row?.sha256}`)
    expect([response.status, response.headers.get('etag')]).toEqual([404, null])
  })

  it("is used by the console in place of the provider's link", async () => {
    const pages = await Promise.all(
      ['', 'requests', `requests/${requestId}`].map(async (path) => (await get(path, { accept: 'text/html' })).text()),
    )
    for (const page of pages) expect(page).toContain(`src="/media/${sha256}/thumbnail"`)
    expect(pages[2]).toContain(`href="/media/${sha256}"`)
    expect(pages.join('')).not.toMatch(/<img[^>]*src="http/)
  })

  it("is linked in the API beside the provider's link", async () => {
    const headers = { authorization: `Bearer ${token}` }
    const request = await call(receiver, `GET /api/requests/${requestId}`, { headers })
    const archived = {
      sha256,
      bytes: picture.length,
      content_type: 'image/png',
      archive_error: null,
      archived_at: expect.stringMatching(/Z$/),
    }
    expect(request.json.media).toMatchObject([archived])
    const feed = await call(receiver, 'GET /api/feed', { headers })
    expect(feed.json.data.find((one: { request_id: string }) => one.request_id === requestId).media).toMatchObject([
      archived,
    ])
  })
})
