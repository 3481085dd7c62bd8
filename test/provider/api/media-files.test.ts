import fs from 'node:fs/promises'
import http from 'node:http'
import os from 'node:os'
import path from 'node:path'
import express from 'express'
import request from 'supertest'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { errorHandler, notFound } from '../../../src/platform/http/http.ts'
import { createLogger } from '../../../src/platform/logger.ts'
import { serveMedia } from '../../../src/provider/api/media-files.ts'
import { errorEnvelopeSchema } from '../../../src/wire/schemas.ts'

let root: string
const bytes = Buffer.from(Array.from({ length: 1000 }, (_, index) => index % 256))
const clip = '/media/4d3c/video-0011223344556677.mp4'

function app() {
  return express()
    .use('/media', serveMedia(path.join(root, 'media')))
    .use(notFound)
    .use(errorHandler(createLogger('silent')))
}

beforeAll(async () => {
  root = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-media-'))
  const folder = path.join(root, 'media', '4d3c')
  await fs.mkdir(path.join(folder, '.scratch-1'), { recursive: true })
  await fs.writeFile(path.join(root, 'secret.png'), 'secret')
  await Promise.all(
    [
      'video-0011223344556677.mp4',
      'a.png',
      'a.webp',
      'a.jpg',
      'a.mp3',
      'a.wav',
      'a.html',
      'a.svg',
      '.hidden.png',
      '.scratch-1/layer.png',
    ].map((name) => fs.writeFile(path.join(folder, name), bytes)),
  )
})

afterAll(() => fs.rm(root, { recursive: true, force: true }))

describe('GET of a media file', () => {
  it('answers the bytes with type, length and immutable caching', async () => {
    const answer = await request(app()).get(clip).expect(200)
    expect(answer.body).toEqual(bytes)
    expect(answer.headers).toMatchObject({
      'content-type': 'video/mp4',
      'content-length': '1000',
      'accept-ranges': 'bytes',
      etag: '"video-0011223344556677.mp4"',
      'cache-control': 'public, max-age=31536000, immutable',
      'x-content-type-options': 'nosniff',
      'cross-origin-resource-policy': 'cross-origin',
    })
    expect(answer.headers['content-security-policy']).toContain("default-src 'none'")
  })

  it.each([
    ['a.png', 'image/png'],
    ['a.webp', 'image/webp'],
    ['a.jpg', 'image/jpeg'],
    ['a.mp3', 'audio/mpeg'],
    ['a.wav', 'audio/wav'],
  ])('serves %s as %s', async (name, type) => {
    const answer = await request(app()).get(`/media/4d3c/${name}`).expect(200)
    expect(answer.headers['content-type']).toBe(type)
  })

  it('answers HEAD with the same headers and no body', async () => {
    const answer = await request(app()).head(clip).expect(200)
    expect(answer.headers).toMatchObject({ 'content-type': 'video/mp4', 'content-length': '1000' })
    expect(answer.text).toBeUndefined()
  })

  it('answers 304 for a matching ETag', async () => {
    await request(app()).get(clip).set('If-None-Match', '"video-0011223344556677.mp4"').expect(304)
    await request(app()).get(clip).set('If-None-Match', '"another"').expect(200)
  })
})

describe('a range', () => {
  it.each([
    ['bytes=0-99', 0, 99],
    ['bytes=900-', 900, 999],
    ['bytes=-10', 990, 999],
    ['bytes=990-5000', 990, 999],
  ])('%s is answered with 206', async (range, first, last) => {
    const answer = await request(app()).get(clip).set('Range', range).expect(206)
    expect(answer.headers['content-range']).toBe(`bytes ${first}-${last}/1000`)
    expect(answer.headers['content-type']).toBe('video/mp4')
    expect(answer.body).toEqual(bytes.subarray(first, last + 1))
  })

  it('outside the file is 416, with the size, in the envelope, and not to be cached', async () => {
    const answer = await request(app()).get(clip).set('Range', 'bytes=1000-').expect(416)
    expect(answer.headers['content-range']).toBe('bytes */1000')
    expect(answer.headers).not.toHaveProperty('cache-control')
    expect(errorEnvelopeSchema.parse(answer.body).error.code).toBe('range_not_satisfiable')
  })

  it('with If-Range of another version is answered with the whole file', async () => {
    await request(app()).get(clip).set('Range', 'bytes=0-9').set('If-Range', '"another"').expect(200)
    await request(app()).get(clip).set('Range', 'bytes=0-9').set('If-Range', '"video-0011223344556677.mp4"').expect(206)
  })
})

describe('what is not a media file', () => {
  it.each([
    ['a file that is not there', '/media/4d3c/b.png'],
    ['a folder', '/media/4d3c/'],
    ['the root', '/media/'],
    ['a page', '/media/4d3c/a.html'],
    ['a drawing that could run scripts', '/media/4d3c/a.svg'],
    ['a hidden file', '/media/4d3c/.hidden.png'],
    ['a file in a hidden folder', '/media/4d3c/.scratch-1/layer.png'],
    ['a step out of the folder', '/media/../secret.png'],
    ['an encoded step out', '/media/%2e%2e/secret.png'],
    ['an encoded slash', '/media/..%2fsecret.png'],
    ['a backslash', '/media/..%5csecret.png'],
    ['a NUL', '/media/4d3c/a.html%00.png'],
    ['broken percent-encoding', '/media/%zz.png'],
    ['an absolute path', '/media//etc/hostname.png'],
    ['a name that no file system takes', `/media/${'a'.repeat(400)}.png`],
  ])('%s is 404 in the envelope', async (_what, target) => {
    const { status, headers, body } = await raw(target)
    expect(status).toBe(404)
    expect(headers['content-type']).toMatch(/^application\/json/)
    expect(headers).not.toHaveProperty('cache-control')
    expect(errorEnvelopeSchema.parse(JSON.parse(body)).error).toMatchObject({
      type: 'invalid_request_error',
      code: 'not_found',
    })
    expect(body).not.toContain(root)
  })

  it('other methods are 405 with Allow', async () => {
    const answer = await request(app()).delete(clip).expect(405)
    expect(answer.headers['allow']).toBe('GET, HEAD')
    expect(errorEnvelopeSchema.parse(answer.body).error.code).toBe('method_not_allowed')
  })
})

/** Sends the target as it stands: clients tidy up `..` before it leaves them. */
async function raw(target: string): Promise<{ status: number; headers: http.IncomingHttpHeaders; body: string }> {
  const server = http.createServer(app()).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('not listening')
  try {
    const { promise, resolve, reject } = Promise.withResolvers<http.IncomingMessage>()
    http.get({ host: '127.0.0.1', port: address.port, path: target, agent: false }, resolve).on('error', reject)
    const answer = await promise
    let body = ''
    for await (const chunk of answer.setEncoding('utf8')) body += chunk
    return { status: answer.statusCode ?? 0, headers: answer.headers, body }
  } finally {
    server.close()
  }
}
