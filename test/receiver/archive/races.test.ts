import fs from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import sharp from 'sharp'
import { beforeAll, describe, expect, it } from 'vitest'
import { leaseSeconds } from '../../../src/platform/postgres/lease-keeper.ts'
import { later, postgresTime } from '../../../src/platform/postgres/time.ts'
import { createArchiver, followFeed } from '../../../src/receiver/archive/archiver.ts'
import { claimCopies, type Copy } from '../../../src/receiver/archive/copies.ts'
import { copyMedia } from '../../../src/receiver/archive/copying.ts'
import { createDownloader } from '../../../src/receiver/archive/download.ts'
import { openFileStore } from '../../../src/receiver/archive/file-store.ts'
import { removeMedia, removeUnreferred } from '../../../src/receiver/archive/removal.ts'
import type { ArchiveStore } from '../../../src/receiver/archive/store.ts'
import { preferredServer, type TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { withReceiver, type WithReceiver } from '../../support/with-receiver.ts'
import { mediaStand, pngOf, temporaryFolder, unknownResult, type MediaStand } from './media-stand.ts'

const hourMs = 3_600_000
const now = postgresTime()

/** Two replicas that meet at one file, each step of them when the test says so. */
describe('copies during a removal of the same file', () => {
  let database: TestDatabase
  let receiver: WithReceiver['receiver']
  let stand: MediaStand
  let store: ArchiveStore
  let root: string

  beforeAll(async () => {
    const folder = await temporaryFolder()
    root = folder.root
    // Its own archive is off: the steps are the test's.
    const its = await withReceiver({ server: preferredServer, stand: true })
    ;({ database, receiver } = its)
    stand = mediaStand(its)
    store = await openFileStore(root)
    return async () => {
      await its.stop()
      await folder.remove()
    }
  })

  const db = () => receiver.deps.db
  const claimed = async (picture: Buffer): Promise<Copy> => {
    const requestId = await stand.land([stand.serve('same.png', picture)])
    return eventually(async () => {
      await followFeed(db())
      return (await claimCopies(db(), { limit: 10 })).find((copy) => copy.request_id === requestId)
    })
  }
  const copied = async (copy: Copy, into: ArchiveStore = store, cut = new AbortController().signal) => {
    const downloader = createDownloader({ maxBytes: 1_000_000, mediaHosts: undefined, production: false })
    const { keys, logger } = receiver.deps
    const deps = { db: db(), keys, fetchRatePerMinute: 60, fetchResult: unknownResult, store: into, downloader, logger }
    return (await copyMedia(deps, copy, cut).finally(downloader.close)).outcome
  }
  /** A store that pauses at a given call, reports the pause, and continues on demand. */
  const stopping = (at: 'before' | 'after') => {
    const [reached, goOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const stop = () => (reached.resolve(), goOn.promise)
    const keep: ArchiveStore['keep'] = async (...file) => {
      if (at === 'before') await stop()
      await store.keep(...file)
      if (at === 'after') await stop()
    }
    return { into: { ...store, keep }, reached: reached.promise, goOn: goOn.resolve }
  }
  const swept = async (seconds: number) => {
    while ((await removeUnreferred(db(), store, later(now, seconds))).removed > 0);
  }
  const filesLeft = async () =>
    (await fs.readdir(root, { recursive: true })).filter((name) => /\.(?:png|webp|part)$/.test(name))
  /** Returns files without a reference, and media without their file, after all due work is done. */
  const wrong = async () => {
    await swept(3600)
    const media = await database.sql<
      { archived_url: string }[]
    >`select archived_url from mediadock.media where archived_url is not null`
    const urls = media.map(({ archived_url }) => fileURLToPath(archived_url))
    const left = (await filesLeft()).map((name) => `${root}/${name}`)
    return {
      unreferred: left.filter(
        (file) => !urls.some((url) => url === file || url.replace('.png', '.thumbnail.webp') === file),
      ),
      missing: urls.filter((url) => !left.includes(url)),
    }
  }

  it('leave no file of a request removed during its copy, after seconds', async () => {
    const copy = await claimed(pngOf(40))
    const { into, reached, goOn } = stopping('before')
    const outcome = copied(copy, into)
    await reached
    expect((await removeMedia(db(), copy.request_id)).known).toBe(true)
    goOn()
    expect(await outcome).toBe('no_longer_ours')
    await swept(1)
    expect(await filesLeft()).toEqual([])
  })

  it('leave nothing of a killed process, even if no other starts', async () => {
    let hostNow = Date.now()
    const archiver = createArchiver({
      db: db(),
      keys: receiver.deps.keys,
      fetchRatePerMinute: 60,
      fetchResult: unknownResult,
      openStore: () => openFileStore(root),
      maxBytes: 1000,
      clock: () => new Date(hostNow),
      logger: receiver.deps.logger,
      onCopied: () => {},
      signal: new AbortController().signal,
      mediaHosts: undefined,
      production: false,
    })
    await archiver.runOnce()
    const [begun, fresh] = [`${root}/incoming/begun.part`, `${root}/incoming/fresh.part`]
    await fs.writeFile(begun, 'a part of what was removed')
    await fs.writeFile(fresh, 'what another is copying')
    await fs.utimes(begun, new Date(hostNow - 2 * hourMs), new Date(hostNow - 2 * hourMs))
    hostNow += hourMs / 4
    await archiver.runOnce()
    await archiver.idle()
    expect(await filesLeft()).toEqual(['incoming/fresh.part'])
    await fs.rm(fresh)
  })

  it('do not decode a picture whose copying killed three processes, claim it ever more rarely, and store it', async () => {
    const first = await claimed(
      await sharp({ create: { width: 64, height: 64, channels: 3, background: '#c33' } })
        .png()
        .toBuffer(),
    )
    // These claims never end, since their process was killed.
    let last = first
    const claimedAfter: number[] = []
    for (let seconds = 0; claimedAfter.length < 3; seconds += 5) {
      const [again] = await claimCopies(db(), { now: later(now, seconds), limit: 10 })
      if (!again) continue
      claimedAfter.push(seconds)
      last = again
    }
    const [one = 0, two = 0, three = 0] = claimedAfter
    expect([two - one, three - two]).toEqual([2 * leaseSeconds, 4 * leaseSeconds])
    expect(await copied(last)).toBe('archived')
    expect(await filesLeft()).toEqual([expect.stringMatching(/\.png$/)])
    await removeMedia(db(), first.request_id)
    await swept(1)

    // One that another has ended is none of these.
    const cut = await claimed(pngOf(45))
    expect(await copied(cut, store, AbortSignal.abort())).toBe('cut')
    expect((await claimCopies(db(), { now: later(now, 1), limit: 10 })).map(({ unended }) => unended)).toEqual([1])
  })

  it('leave no file that was stored after its deletion', async () => {
    const picture = pngOf(41)
    const first = await claimed(picture)
    expect(await copied(first)).toBe('archived')
    const second = await claimed(picture)
    const { into, reached, goOn } = stopping('before')
    const outcome = copied(second, into)
    await reached
    await removeMedia(db(), first.request_id)
    await swept(1)
    goOn()
    expect(await outcome).toBe('no_longer_ours')
    await removeMedia(db(), second.request_id)
    expect(await wrong()).toEqual({ unreferred: [], missing: [] })
  })

  it('refer to no file that was deleted after it was stored, although another copy is about to store it', async () => {
    const picture = pngOf(42)
    const first = await claimed(picture)
    expect(await copied(first)).toBe('archived')
    const [second, third] = [await claimed(picture), await claimed(picture)]
    const slow = stopping('after')
    const outcome = copied(second, slow.into)
    await slow.reached
    await removeMedia(db(), first.request_id)
    await swept(1)
    // Says that it is about to store the file, and ends there.
    const dying = stopping('before')
    const died = copied(third, {
      ...dying.into,
      keep: (...file) => dying.into.keep(...file).then(() => Promise.reject(new Error('killed'))),
    }).catch(() => {})
    await dying.reached
    slow.goOn()
    await outcome
    expect((await wrong()).missing).toEqual([])
    dying.goOn()
    await died
  })

  it('delete no file that was stored again while a replica was busy with others', async () => {
    const [picture, other] = [pngOf(43), pngOf(44)]
    for (const copy of [await claimed(other), await claimed(picture)]) {
      expect(await copied(copy)).toBe('archived')
      await removeMedia(db(), copy.request_id)
    }
    const again = await claimed(picture)
    let steps = 0
    const slow: ArchiveStore = {
      ...store,
      remove: async (file) => {
        steps += 1
        if (steps === 1) {
          await swept(90)
          expect(await copied(again)).toBe('archived')
        }
        return store.remove(file)
      },
    }
    await removeUnreferred(db(), slow, later(now, 1))
    expect(steps).toBeGreaterThan(0)
    expect((await wrong()).missing).toEqual([])
  })
})
