import fs from 'node:fs/promises'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import S3rver from 's3rver'
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { openS3Store } from '../../../src/receiver/archive/s3-store.ts'
import { nameOfThumbnail } from '../../../src/receiver/archive/store.ts'
import { nameOfFile } from '../../../src/receiver/domain/archived-file.ts'
import { preferredServer } from '../../support/database.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { archivedMedia, failedCopy, mediaStand, pngOf, temporaryFolder } from './media-stand.ts'

const never = new AbortController().signal

describe('an archive in a bucket', () => {
  let endpoint: string
  const place = (bucket = 'media') => ({
    kind: 's3' as const,
    bucket,
    prefix: 'kept/here',
    endpoint,
    region: undefined,
  })

  beforeAll(async () => {
    vi.stubEnv('AWS_ACCESS_KEY_ID', 'S3RVER')
    vi.stubEnv('AWS_SECRET_ACCESS_KEY', 'S3RVER')
    const [folder, temporary] = [await temporaryFolder(), await temporaryFolder()]
    vi.stubEnv('TMPDIR', temporary.root)
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
      await Promise.all([folder.remove(), temporary.remove()])
    }
  })
  afterAll(() => vi.unstubAllEnvs())

  it('stores copies, and serves ranges of them', async () => {
    const its = await withReceiver({ server: preferredServer, stand: true, settings: { mediaArchive: place() } })
    onTestFinished(its.stop)
    const stand = mediaStand(its)
    const picture = pngOf(50)
    const [row] = await archivedMedia(its.database, await stand.land([stand.serve('a.png', picture)]))
    const sha256 = row?.sha256 ?? ''
    expect(row).toMatchObject({
      archived_url: `s3://media/kept/here/${sha256.slice(0, 2)}/${sha256}.png`,
      bytes: String(picture.length),
    })
    const store = await openS3Store(place())
    const file = { sha256, contentType: 'image/png' }
    const [name, thumbnail] = [nameOfFile(file), nameOfThumbnail(sha256)]
    const whole = await store.read(name, never)
    expect(whole?.bytes).toBe(picture.length)
    expect(Buffer.concat(await (whole?.stream.toArray() ?? []))).toEqual(picture)
    const part = await store.read(name, never, { start: 1, end: 3 })
    expect([part?.bytes, part && (await text(part.stream))]).toEqual([picture.length, 'PNG'])
    expect((await store.read(thumbnail, never))?.bytes).toBeGreaterThan(20)
    await store.remove(file)
    expect(await store.read(name, never)).toBeUndefined()
    expect(await store.read(thumbnail, never)).toBeUndefined()
    await store.remove(file)
  })

  it('receives no unreadable file, and the process survives', async () => {
    const store = await openS3Store(place())
    // One can be opened, and not be read: a folder.
    for (const from of [`${store.spoolDir}/nothing-here`, store.spoolDir]) {
      const file = { path: from, sha256: 'a'.repeat(64), contentType: 'image/png', bytes: 10 }
      await expect(store.keep(file, never)).rejects.toThrow('keeping a file in s3://media')
    }
  })

  it('spools in a new folder, whatever another user has created in TMPDIR', async () => {
    const folder = await temporaryFolder()
    onTestFinished(folder.remove)
    const at = (...names: string[]) => path.join(folder.root, ...names)
    // Prepared by another user: a formerly used name, a link that looks like a spool, and a foreign folder.
    for (const name of ['elsewhere', 'mediadock-spool-foreign', 'mediadock-spool-left']) await fs.mkdir(at(name))
    for (const name of ['mediadock-archive', 'mediadock-spool-link']) await fs.symlink(at('elsewhere'), at(name))
    const long = new Date(Date.now() - 7_200_000)
    const left = [
      'elsewhere/old',
      'mediadock-spool-foreign/old',
      'mediadock-spool-left/old',
      'mediadock-spool-left/new',
    ]
    for (const name of left) await fs.writeFile(at(name), '')
    for (const name of left.slice(0, 3)) await fs.utimes(at(name), long, long)
    const isRoot = process.getuid?.() === 0
    if (isRoot) await fs.chown(at('mediadock-spool-foreign'), 65_534, 65_534)
    const before = process.env['TMPDIR']
    vi.stubEnv('TMPDIR', folder.root)
    onTestFinished(() => void vi.stubEnv('TMPDIR', before))

    const { spoolDir } = await openS3Store(place())
    expect(path.dirname(spoolDir)).toBe(folder.root)
    const made = await fs.lstat(spoolDir)
    expect([made.isDirectory(), made.mode & 0o777, made.uid]).toEqual([true, 0o700, process.getuid?.() ?? made.uid])
    expect(await fs.readdir(spoolDir)).toEqual([])
    expect(await fs.readdir(at('mediadock-spool-left'))).toEqual(['new'])
    expect(await fs.readdir(at('elsewhere'))).toEqual(['old'])
    if (isRoot) expect(await fs.readdir(at('mediadock-spool-foreign'))).toEqual(['old'])
    expect((await openS3Store(place())).spoolDir).not.toBe(spoolDir)
  })

  it('counts no try and gives up nothing while it cannot be written', async () => {
    const its = await withReceiver({
      server: preferredServer,
      stand: true,
      settings: { mediaArchive: place('nowhere') },
    })
    onTestFinished(its.stop)
    const stand = mediaStand(its)
    const requestId = await stand.land([stand.serve('a.png', pngOf(5))])
    expect(await failedCopy(its.database, requestId, 'store', 0)).toMatchObject({ state: 'waiting', tries: 0 })
  })
})
