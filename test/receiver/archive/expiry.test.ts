import fs from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { expect, it, onTestFinished } from 'vitest'
import { archive } from '../../../src/receiver/archive/archive.ts'
import { preferredServer } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { archivedMedia, mediaStand, pngOf, temporaryFolder } from './media-stand.ts'

const folderOfAnother = { kind: 'file', root: '/nowhere' } as const

/** Prunes as the retention of a receiver with this setting does; returns the number of media that it removed. */
function pruneAfter({ deps: { db, settings, clock } }: TestReceiver, mediaArchiveRetentionDays: number | undefined) {
  const { signal } = new AbortController()
  const mediaArchive = settings.mediaArchive ?? folderOfAnother
  return archive.prune?.({
    db,
    settings: { ...settings, mediaArchive, mediaArchiveRetentionDays },
    now: clock(),
    signal,
  })
}

it('removes media that have been archived for MEDIA_ARCHIVE_RETENTION_DAYS, but no file of a younger one', async () => {
  const folder = await temporaryFolder()
  onTestFinished(folder.remove)
  const settings = { mediaArchive: { kind: 'file', root: folder.root } as const }
  const { receiver, database, stop, ...its } = await withReceiver({ server: preferredServer, stand: true, settings })
  onTestFinished(stop)
  const stand = mediaStand({ receiver, ...its })
  const [own, shared] = [pngOf(50), pngOf(51)]
  const old = await stand.land([stand.serve('old.png', own), stand.serve('both.png', shared)])
  const before = await archivedMedia(database, old)
  const young = await stand.land([stand.serve('young.png', shared)])
  await archivedMedia(database, young)
  await database.sql`update mediadock.media_copies set ended_at = ended_at - interval '8 days' where request_id = ${old}`
  const prune = (days?: number) => pruneAfter(receiver, days)

  expect(await prune()).toBe(0)
  expect(await prune(9)).toBe(0)
  expect(await prune(7)).toBe(1)
  expect(await prune(7)).toBe(0)
  const empty = { archived_url: null, sha256: null, archived_at: null, archive_error: 'expired' }
  expect(await archivedMedia(database, old)).toMatchObject([empty, empty])
  expect(await archivedMedia(database, young)).toMatchObject([{ archive_error: null, sha256: before[1]?.sha256 }])
  const files = before.map(({ archived_url: url }) => fileURLToPath(url ?? ''))
  await eventually(async () => (await fs.stat(files[0] ?? '').catch(() => undefined)) === undefined)
  expect((await fs.stat(files[1] ?? '')).size).toBe(shared.length)
  // Nor are they copied again.
  expect(await database.sql`select state from mediadock.media_copies where request_id = ${old}`).toEqual([
    { state: 'removed' },
    { state: 'removed' },
  ])
})

it('removes copies of a deleted request too, and ends', async () => {
  const { receiver, database, stop } = await withReceiver({ server: preferredServer })
  onTestFinished(stop)
  await database.sql`insert into mediadock.media_copies (request_id, kind, position, url, state, due_at, ended_at)
    values (gen_random_uuid(), 'image', 0, 'https://media.test/x.png', 'archived', now(), now() - interval '8 days')`
  expect(await pruneAfter(receiver, 7)).toBe(0)
  expect(await database.sql`select state from mediadock.media_copies`).toEqual([{ state: 'removed' }])
})
