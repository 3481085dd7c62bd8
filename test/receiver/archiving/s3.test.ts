import { text } from 'node:stream/consumers'
import S3rver from 's3rver'
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { openS3Store } from '../../../src/receiver/archiving/s3-store.ts'
import { preferredServer } from '../../support/database.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { archivedMedia, failedCopy, mediaStand, pngOf, temporaryFolder } from './media-stand.ts'

const never = new AbortController().signal

describe('an archive in a bucket', () => {
  let endpoint: string
  const place = (bucket = 'media') => ({ kind: 's3' as const, bucket, prefix: 'kept/here', endpoint, region: undefined })

  beforeAll(async () => {
    vi.stubEnv('AWS_ACCESS_KEY_ID', 'S3RVER')
    vi.stubEnv('AWS_SECRET_ACCESS_KEY', 'S3RVER')
    const folder = await temporaryFolder()
    const s3 = new S3rver({
      address: '127.0.0.1',
      port: 0,
      silent: true,
      directory: folder.root,
      configureBuckets: [{ name: 'media', configs: [] }],
    })
    const { port } = await s3.run()
    endpoint = `http://127.0.0.1:${port}`
    return async () => {
      await s3.close()
      await folder.remove()
    }
  })
  afterAll(() => vi.unstubAllEnvs())

  it('has what was copied, and gives ranges of it', async () => {
    const its = await withReceiver({ server: preferredServer, stand: true, settings: { mediaArchive: place() } })
    onTestFinished(its.stop)
    const stand = mediaStand(its)
    const picture = pngOf(50)
    const [row] = await archivedMedia(its.database, await stand.land([stand.serve('a.png', picture)]))
    const sha256 = row?.sha256 ?? ''
    expect(row).toMatchObject({ archived_url: `s3://media/kept/here/${sha256.slice(0, 2)}/${sha256}.png`, bytes: String(picture.length) })
    const store = await openS3Store(place())
    const file = { sha256, contentType: 'image/png' }
    const whole = await store.read(file, never)
    expect(whole?.bytes).toBe(picture.length)
    expect(Buffer.concat(await (whole?.stream.toArray() ?? []))).toEqual(picture)
    const part = await store.read(file, never, { start: 1, end: 3 })
    expect([part?.bytes, part && (await text(part.stream))]).toEqual([picture.length, 'PNG'])
    expect((await store.read({ thumbnailOf: sha256 }, never))?.bytes).toBeGreaterThan(20)
    await store.remove(file)
    expect(await store.read(file, never)).toBeUndefined()
    expect(await store.read({ thumbnailOf: sha256 }, never)).toBeUndefined()
    await store.remove(file)
  })

  it('is not given what cannot be read, and the process goes on', async () => {
    const store = await openS3Store(place())
    // One can be opened, and not be read: a folder.
    for (const from of [`${store.spoolDir}/nothing-here`, store.spoolDir]) {
      const file = { path: from, sha256: 'a'.repeat(64), contentType: 'image/png', bytes: 10 }
      await expect(store.keep(file, never)).rejects.toThrow('keeping a file in s3://media')
    }
  })

  it('that cannot be written is our own fault: no try is counted, and nothing is given up', async () => {
    const its = await withReceiver({ server: preferredServer, stand: true, settings: { mediaArchive: place('nowhere') } })
    onTestFinished(its.stop)
    const stand = mediaStand(its)
    const requestId = await stand.land([stand.serve('a.png', pngOf(5))])
    expect(await failedCopy(its.database, requestId, 'store', 0)).toMatchObject({ state: 'waiting', tries: 0 })
  })
})
