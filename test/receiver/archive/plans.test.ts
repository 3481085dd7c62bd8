import type { Sql } from 'postgres'
import { describe, expect, it } from 'vitest'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { followFeed } from '../../../src/receiver/archive/archiver.ts'
import {
  claimCopies,
  giveUpCopy,
  putOffCopy,
  renewCopies,
  endCopy,
  wantFile,
} from '../../../src/receiver/archive/copies.ts'
import { expireMedia, removeMedia, removeUnreferred } from '../../../src/receiver/archive/removal.ts'
import type { ArchiveStore } from '../../../src/receiver/archive/store.ts'
import { testServers, withTestDatabase } from '../../support/database.ts'

const rows = 20_000
const tables = ['requests', 'media', 'media_copies', 'archived_files', 'feed_entries']
/** Keeps nothing: what is looked at are the statements. */
const nowhere = { remove: async () => {} } as unknown as ArchiveStore

describe.each(testServers)('the statements of the archive (%s)', (server) => {
  it('scan no table, regardless of its statistics', async ({ onTestFinished }) => {
    const { url, sql } = await withTestDatabase(server)
    // One session, so that it can be made to tell what it read.
    const { db, client, close } = createPool({ url, max: 1 })
    onTestFinished(close)
    await client.unsafe(`
      create temporary table ids as select gen_random_uuid() as id, n from generate_series(1, ${rows}) n;
      alter table mediadock.requests disable trigger all; alter table mediadock.media disable trigger all;
      insert into mediadock.requests (request_id, status, media_complete, landed_at, source) select id, 'COMPLETED', true, now(), 'webhook' from ids;
      insert into mediadock.media (request_id, kind, position, url) select id, 'image', 0, 'https://media.test/' || n from ids;
      insert into mediadock.media_copies (request_id, kind, position, url, state, due_at, sha256, expires_at)
        select id, 'image', 0, 'https://media.test/' || n || case when n % 100 = 0 then 'old' else '' end,
          case when n % 2 = 0 then 'archived' else 'waiting' end, now() - interval '1 second' * n, case when n % 2 = 0 then 'sha' || n end,
          case when n % 4 = 1 then now() + interval '1 minute' * n end from ids where n > 200;
      insert into mediadock.archived_files (sha256, bytes, content_type, stored_at, look_at) select 'sha' || n, 1, 'image/png', now(), case when n < 400 then now() - interval '1 minute' end from ids;
      insert into mediadock.feed_entries (position, changed_at, request_id, status, media_complete) select n, now(), id, 1, true from ids;
    `)
    const [{ id } = { id: '' }] =
      await sql`select request_id as id from mediadock.media_copies where state = 'archived' limit 1`
    await client`select pg_stat_force_next_flush()`
    const before = await readWhole(sql)

    expect(await followFeed(db)).toEqual({ changes: 1000, queued: 208, more: true })
    const [first, second, third] = await claimCopies(db, { limit: 3 })
    if (!first || !second || !third) throw new Error('nothing was claimed')
    expect(await renewCopies(db, [first, second, third])).toHaveLength(3)
    await giveUpCopy(db, first, { fault: 'refused', trouble: 'x' })
    await putOffCopy(db, second, { fault: 'gone', trouble: 'x', pauseSeconds: 1, counts: true })
    const file = { sha256: 'f'.repeat(64), bytes: 1, contentType: 'image/png' }
    const incarnation = String(await wantFile(db, file))
    expect(await endCopy(db, third, { ...file, incarnation, archivedUrl: 'file:///x', hasThumbnail: false })).toBe(true)
    expect((await removeMedia(db, String(id))).media).toBe(1)
    await sql`update mediadock.media_copies set ended_at = now() - interval '1 year' where request_id in (select request_id from mediadock.media_copies where state = 'archived' limit 2)`
    expect(await expireMedia(db, new Date(Date.now() - 86_400_000), new AbortController().signal)).toBe(2)
    expect((await removeUnreferred(db, nowhere)).removed).toBeGreaterThan(0)

    await client`select pg_stat_force_next_flush()`
    const after = await readWhole(sql)
    expect(after['written']).toBeGreaterThan(Number(before['written']) + 200)
    for (const table of tables)
      expect({ table, read: Number(after[table]) - Number(before[table]) < rows / 2 }).toEqual({ table, read: true })
  })
})

/** Rows of each table that were read by going through it, and how many were written of copies. */
async function readWhole(sql: Sql): Promise<Record<string, number>> {
  const found = await sql<{ name: string; read: string; written: string }[]>`
    select relname as name, seq_tup_read as read, n_tup_ins + n_tup_upd + n_tup_del as written from pg_stat_user_tables where schemaname = 'mediadock'`
  const counts = Object.fromEntries(found.map(({ name, read }) => [name, Number(read)]))
  return { ...counts, written: Number(found.find(({ name }) => name === 'media_copies')?.written) }
}
