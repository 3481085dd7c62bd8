import { describe, expect, it } from 'vitest'
import { sql } from '../../src/platform/postgres/drizzle.ts'
import type { Database } from '../../src/platform/postgres/postgres.ts'
import { postgresTime } from '../../src/platform/postgres/time.ts'
import { claimDeliveries } from '../../src/receiver/landing/inbox.ts'
import { usualServers, withTestDatabase } from '../support/database.ts'
import { createTestWorker } from '../support/worker.ts'
import { storeFailures } from './support/stored-failures.ts'

const mib = 1024 * 1024

describe.each(usualServers)('the memory of landing (%s)', (server) => {
  it('a claim takes up to 8 MiB, or one larger delivery, and reads no other body', async () => {
    const database = await withTestDatabase(server)
    await database.sql`alter table mediadock.deliveries alter body set storage external`
    await storeFailures(database, 50, mib)
    const { db } = createTestWorker({ databaseUrl: database.url, max: 1 })
    const taken = (maxBytes: number) => claimDeliveries(db, { limit: 500, maxBytes, now: postgresTime() })
    expect(await taken(1)).toHaveLength(1)
    const pagesBefore = await toastPagesRead(db)
    expect(await taken(8 * mib)).toHaveLength(8)
    // A body takes about as many pages as its size, and is read once to be sent: 9 of 50 were.
    expect((await toastPagesRead(db)) - pagesBefore).toBeLessThan(25 * (mib / 8192))
    const rest = await taken(1000 * mib)
    expect(rest).toHaveLength(41)
    expect(rest.every(({ claims }) => claims === 1)).toBe(true)
  })
})

/** Pages of bodies that were read so far. `db` has one connection, whose reads are counted at once. */
async function toastPagesRead(db: Database): Promise<number> {
  await db.execute(sql`select pg_stat_force_next_flush()`)
  const [row] = await db.execute<{ pages: string }>(sql`
    select toast_blks_hit + toast_blks_read as pages from pg_statio_user_tables where relname = 'deliveries'`)
  return Number(row?.pages)
}
