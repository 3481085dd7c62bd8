import fs from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { beforeAll, describe, expect, it } from 'vitest'
import { mediadockHere } from '../../commands/mediadock.ts'
import { preferredServer, type TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { archivedMedia, mediaStand, pngOf, temporaryFolder, type MediaStand } from './media-stand.ts'

describe('mediadock media remove', () => {
  let database: TestDatabase
  let stand: MediaStand

  beforeAll(async () => {
    const folder = await temporaryFolder()
    const settings = { mediaArchive: { kind: 'file', root: folder.root } as const }
    const its = await withReceiver({ server: preferredServer, stand: true, settings })
    database = its.database
    stand = mediaStand(its)
    return async () => {
      await its.stop()
      await folder.remove()
    }
  })

  const remove = (...args: string[]) => mediadockHere({ DATABASE_URL: database.url }, 'media', 'remove', ...args)
  const exists = (url: string | null | undefined) =>
    fs.access(fileURLToPath(url ?? '')).then(
      () => true,
      () => false,
    )

  it('deletes the files of a request except shared ones, writes to the feed, and is in the audit', async () => {
    const [own, shared] = [pngOf(20), pngOf(21)]
    const requestId = await stand.land([stand.serve('own.png', own), stand.serve('shared.png', shared)])
    const other = await stand.land([stand.serve('other.png', shared)])
    const before = await archivedMedia(database, requestId)
    await archivedMedia(database, other)
    const { code, stdout, stderr } = await remove(requestId, '--json')
    expect({ code, stderr, ...JSON.parse(stdout) }).toEqual({ code: 0, stderr: '', media: 2, files: 2, files_left: 0 })
    expect(await Promise.all(before.map(({ archived_url }) => exists(archived_url)))).toEqual([false, true])
    const empty = {
      archived_url: null,
      bytes: null,
      content_type: null,
      sha256: null,
      archived_at: null,
      archive_error: 'removed',
    }
    expect(await archivedMedia(database, requestId)).toMatchObject([empty, empty])
    expect(await archivedMedia(database, other)).toMatchObject([{ archive_error: null, sha256: before[1]?.sha256 }])
    await eventually(
      async () =>
        (await database.sql`select 1 from mediadock.feed where request_id = ${requestId} and media_complete`).length ===
        4,
    )
    expect(await database.sql`select via, action, target, detail from mediadock.audit`).toEqual([
      { via: 'cli', action: 'media_remove', target: requestId, detail: { media: 2, files: 2 } },
    ])
    // The next change does not bring them back, even with another link.
    const link = stand.serve('again.png', pngOf(22))
    await database.sql`update mediadock.media set url = ${link} where request_id = ${requestId} and position = 0`
    await database.sql`update mediadock.requests set metadata = '1' where request_id = ${requestId}`
    await eventually(async () => {
      const [{ done } = { done: false }] =
        await database.sql`select position >= (select max(position) from mediadock.feed where request_id = ${requestId}) as done from mediadock.archive_progress`
      return (
        done &&
        (await database.sql`select 1 from mediadock.feed where request_id = ${requestId} and media_complete`).length ===
          5
      )
    })
    expect(await database.sql`select state from mediadock.media_copies where request_id = ${requestId}`).toEqual([
      { state: 'removed' },
      { state: 'removed' },
    ])
  })

  it('stops copies in progress for the request', async () => {
    const picture = pngOf(30)
    let isCut = false
    const link = stand.serve('slow.png', (res) => {
      res.writeHead(200, { 'content-length': picture.length }).write(picture.subarray(0, 20))
      res.on('close', () => (isCut = true))
    })
    const requestId = await stand.land([link])
    await eventually(
      async () => (await database.sql`select 1 from mediadock.media_copies where request_id = ${requestId}`).length > 0,
    )
    expect(await remove(requestId)).toMatchObject({
      code: 0,
      stdout: '1 media removed, 0 files to delete, 0 not yet deleted\n',
    })
    await eventually(() => isCut)
    expect(await archivedMedia(database, requestId)).toMatchObject([{ archive_error: 'removed' }])
  })

  it('deletes copies of media that an overruled result no longer has', async () => {
    const requestId = await stand.land([stand.serve('overruled.png', pngOf(40))])
    const [copied] = await archivedMedia(database, requestId)
    await database.sql`delete from mediadock.media where request_id = ${requestId}`
    expect((await remove(requestId)).code).toBe(0)
    expect(
      await database.sql`select state, sha256 from mediadock.media_copies where request_id = ${requestId}`,
    ).toEqual([{ state: 'removed', sha256: null }])
    await eventually(async () => !(await exists(copied?.archived_url)))
  })

  it.each([
    [['no-uuid'], 2],
    [['2f0d6c1e-0000-4000-8000-000000000001'], 1],
  ])('%j ends with %i', async (args, code) => {
    expect(await remove(...args)).toMatchObject({ code, stderr: expect.stringMatching(/^mediadock: [^\n]+\n$/) })
  })
})
